// Package urltable is the URL string match table of the emulated card: it finds the end of a request head while its
// bytes arrive, reads the head strictly, and walks the compiled automaton over host and path. Of a TLS connection it reads the
// ClientHello instead.
//
// FindEnd, ParseHead and Match are the three steps in the order of a connection's life. A head of one connection is read
// once, when it is whole; FindHello and ParseHello are to a ClientHello what the first two are to a head. Everything the
// walk needs lies in the images of the URL table and the rule table and in the head; the images may hold anything, since
// the host writes them: indexes are checked, every segment is one step, and every search has a bound, so every walk ends.
//
// A step costs one access of the image, or few, at random: a state's ways out are found by a hash, and a state lists the
// rules of the path so far. Only of these, at most MaxCandidates, the conditions are tested.
//
// What is matched is the normalised form. The host: without port, without one final dot, letters folded to lower case
// (RFC 9110 4.2.3); IPv6 literals are compared by value. The path: dot segments removed and percent-encoded bytes decoded
// (RFC 3986 6.2.2), except that "%2F" stays, because it is no separator, and "%25" stays, so that no two paths fall together;
// the hexadecimal digits of both are upper case. Empty segments are kept. The target
// "*" and the authority of CONNECT have the empty path, which only rules without a path match.
//
// What servers are known to read in two ways is malformed, also where RFC 9112 would let it pass: transfer codings beside
// chunked, a length given twice, a comma or an empty label in a host, bytes beyond ASCII in a target, an encoded NUL in a
// path, a line that ends without CR.
//
// The name of a ClientHello is compared in lower case too; one that ends with a dot, or holds what no name does, is malformed
// (RFC 6066 3).
//
// Nothing here allocates, and no function keeps the bytes it was given beyond the Request that views them.
package urltable
