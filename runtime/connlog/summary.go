package connlog

import (
	"bytes"
	"encoding/binary"

	heads "splicenic/runtime/head"
)

// Kind says what the first bytes of a service's clients are.
type Kind uint8

// The kinds.
const (
	Opaque  Kind = iota // nothing that the log may tell
	Request             // the head of an HTTP request
	Hello               // a ClientHello
)

// What the log keeps of a head, in bytes.
const (
	maxMethod = 32
	maxHost   = 255
	maxPath   = 1024
)

// summary reads the begin of a head. The card has judged the head; this must only not be led astray by bytes that are
// none, or not all there. nil: nothing is known.
func summary(k Kind, b []byte) *Head {
	b = heads.CutProxy(b) // which is the host's and not the client's
	switch k {
	case Request:
		return request(b)
	case Hello:
		return hello(b)
	}
	return nil
}

// line takes a line off; whole says whether its end is there.
func line(b []byte) (line, rest []byte, whole bool) {
	line, rest, whole = bytes.Cut(b, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), rest, whole
}

func request(b []byte) *Head {
	for len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
		b = b[1:]
	}
	first, rest, whole := line(b)
	method, target, ok := bytes.Cut(first, []byte(" "))
	if !ok {
		return nil
	}
	target, version, ok := bytes.Cut(target, []byte(" "))
	if !ok && whole || ok && whole && !bytes.HasPrefix(version, []byte("HTTP/")) {
		return nil
	}
	h := &Head{Method: head(method, maxMethod), Cut: !ok}
	path := target
	switch scheme := bytes.Index(target, []byte("://")); {
	case string(method) == "CONNECT":
		h.host(target)
		path = nil
	case scheme > 0 && target[0] != '/':
		authority := target[scheme+3:]
		if i := bytes.IndexAny(authority, "/?#"); i >= 0 {
			authority, path = authority[:i], authority[i:]
		} else {
			path = nil
		}
		h.host(authority)
	}
	if i := bytes.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
		h.Cut = h.Cut && i > maxPath // what is missing is not the path's
	}
	if h.Path = head(path, maxPath); len(path) > maxPath {
		h.Cut = true
	}
	for whole && h.Host == "" && len(rest) > 0 {
		var field []byte
		if field, rest, whole = line(rest); len(field) == 0 {
			break
		}
		name, value, ok := bytes.Cut(field, []byte(":"))
		if ok && bytes.EqualFold(name, []byte("host")) {
			h.host(bytes.Trim(value, " \t"))
			h.Cut = h.Cut || !whole
		}
	}
	return h
}

// host keeps a host, with its port and without a user's name or password.
func (h *Head) host(b []byte) {
	b = b[bytes.LastIndexByte(b, '@')+1:]
	h.Host = head(b, maxHost)
	h.Cut = h.Cut || len(b) > maxHost
}

// head is the begin of b as text.
func head(b []byte, most int) string { return string(b[:min(len(b), most)]) }

// maxHello is how much of a ClientHello is looked at.
const maxHello = 1 << 14

func hello(b []byte) *Head {
	var all []byte // the handshake's bytes, out of their records
	for len(b) >= 5 && b[0] == 22 && len(all) < maxHello {
		n := min(int(binary.BigEndian.Uint16(b[3:])), len(b)-5)
		all, b = append(all, b[5:5+n]...), b[5+n:]
	}
	c := cursor{b: all}
	if c.number(1) != 1 {
		return nil
	}
	c.number(3)         // length of the handshake message
	c.skip(2 + 32)      // version and random
	c.skip(c.number(1)) // session
	c.skip(c.number(2)) // cipher suites
	c.skip(c.number(1)) // compression methods
	c.number(2)         // length of the extensions
	for !c.short {
		kind, n := c.number(2), c.number(2)
		if kind != 0 || c.short {
			c.skip(n)
			continue
		}
		c.number(2) // length of the list
		if c.number(1) != 0 {
			return nil
		}
		name := c.take(c.number(2))
		if len(name) == 0 {
			return nil
		}
		return &Head{SNI: head(name, maxHost), Cut: c.short || len(name) > maxHost}
	}
	return nil
}

// A cursor reads what is there; short says that something was not.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		n, c.short = len(c.b), true
	}
	t := c.b[:n]
	c.b = c.b[n:]
	return t
}

func (c *cursor) skip(n int) { c.take(n) }

func (c *cursor) number(bytes int) (v int) {
	t := c.take(bytes)
	if len(t) < bytes {
		return 0
	}
	for _, x := range t {
		v = v<<8 | int(x)
	}
	return v
}
