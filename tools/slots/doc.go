// Package slots is what splicectl does with a card's boot slots: it looks whether an image is for this card and this host,
// loads it, reads images back, and lists what is in the slots.
//
// Whoever holds a Session has the card for loads alone: a lock beside the socket keeps other loaders out.
package slots
