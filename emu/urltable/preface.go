package urltable

// preface is what an HTTP/2 client with prior knowledge sends first (RFC 9113 3.4). Its first 18 bytes look like a head.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Preface looks for the client preface of HTTP/2 at the begin of buf. While it is neither there nor ruled out, maybe is
// true and the caller waits for more, also where FindEnd finds an end. No request begins with what rules it in: HTTP/1
// servers refuse the version.
func Preface(buf []byte) (is, maybe bool) {
	n := min(len(buf), len(preface))
	if string(buf[:n]) != preface[:n] {
		return false, false
	}
	return n == len(preface), n < len(preface)
}
