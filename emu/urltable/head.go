package urltable

import "bytes"

// maxEmptyLines is how many empty lines may precede the request line (RFC 9112 2.2 asks for one at least).
const maxEmptyLines = 4

// CanStart says whether a byte may be the first of a request: one of a method's, or the CR of an empty line before it.
// It lets the caller refuse what is not HTTP with its first segment.
func CanStart(b byte) bool { return b == '\r' || class[b]&token != 0 }

// FindEnd looks for the end of a request head. buf is all that arrived, scanned is what the previous call returned as
// scannedTo, zero at first. Where end is not zero, buf[:end] is what ParseHead reads. A line that ends without CR, or one
// empty line too many, ends the head as well: it will be found malformed, and there is no use in waiting. Over all calls
// of a head every byte is looked at once, but for the few of empty lines in front and one line end.
func FindEnd(buf []byte, scanned int) (end, scannedTo int) {
	if scanned == 0 {
		empty := 0
		for ; len(buf)-scanned >= 2 && buf[scanned] == '\r' && buf[scanned+1] == '\n'; scanned += 2 {
			if empty++; empty > maxEmptyLines {
				return scanned + 2, scanned + 2
			}
		}
		// The next byte tells whether another empty line comes. Until then the next call starts over.
		if scanned == len(buf) || scanned == len(buf)-1 && buf[scanned] == '\r' {
			return 0, 0
		}
	}
	for at := scanned; at < len(buf); {
		i := bytes.IndexByte(buf[at:], '\n')
		if i < 0 {
			break
		}
		at += i + 1
		if at < 2 || buf[at-2] != '\r' || at >= 4 && buf[at-3] == '\n' && buf[at-4] == '\r' {
			return at, at
		}
	}
	return 0, len(buf)
}
