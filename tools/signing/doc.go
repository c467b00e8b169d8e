// Package signing makes keys and signed images, and says which keys this machine trusts.
package signing
