// Package container is this project's signed image, .spl: a manifest that says what an image is for, an ed25519 signature
// (RFC 8032) of it, and the bytes for the slot, whose SHA-256 per sector the manifest holds.
//
// A file is, numbers little-endian:
//
//	offset  bytes
//	0       8      magic: 89 "SPL" 0d 0a 1a 0a, which copies in text mode break
//	8       4      version of this layout, 1
//	12      4      m, bytes of the manifest, at most 1 MiB
//	16      m      manifest: JSON in its one canonical form
//	16+m    32     ed25519 public key of the signer
//	48+m    64     signature of "splicenic image\n" and bytes 0 to 48+m
//	112+m          payload: the bytes of the slot from its start, in the order the device takes; to the end of the file
//
// Nothing outside the manifest and the payload's own hashes is believed, and nothing at all before the signature holds
// under a key that the operator named.
package container
