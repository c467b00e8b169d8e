// Package control is what splicectl's commands are made of: it asks a running runtime over its socket, or where there is
// none a card it opens itself, through one interface, and says in one form what went wrong.
package control
