// Package urltable is the URL string match table of the emulated card: it finds the end of a request head while its
// bytes arrive, reads the head strictly, and walks the compiled automaton over host and path.
//
// FindEnd, ParseHead and Match are the three steps in the order of a connection's life. A head of one connection is read
// once, when it is whole. Everything the walk needs lies in the table's memory image and in the head; the image may hold
// anything, since the host writes it: indexes are checked, labels consume input, so every walk ends.
//
// What is matched is the normalised form. The host: without port, without one final dot, letters folded to lower case
// (RFC 9110 4.2.3); IPv6 literals are compared as they are written, not by value. The path: dot segments removed and
// percent-encoded bytes decoded (RFC 3986 6.2.2), except that "%2F" stays, because it is no separator, and "%25" stays,
// so that no two paths fall together; the hexadecimal digits of both are upper case. Empty segments are kept. The target
// "*" and the authority of CONNECT have the empty path, which only rules without a path match.
//
// Nothing here allocates, and no function keeps the bytes it was given beyond the Request that views them.
package urltable
