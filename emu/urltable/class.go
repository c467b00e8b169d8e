package urltable

import (
	"encoding/binary"
	"math/bits"
)

// The classes of a byte, as bits.
const (
	token       = 1 << iota // of a method or field name (RFC 9110 5.6.2)
	text                    // of a line: no control character but HTAB
	name                    // of a registered name (RFC 3986 3.2.2) but the comma, which some servers take for the end of a host
	literal                 // between the brackets of an IPv6 literal
	hexadecimal             // a digit of base 16
	dns                     // of a name as TLS clients send it (RFC 6066 3), underscores as they are in use
	target                  // of a request target: visible ASCII but "#", more than RFC 3986 allows
)

// class says what a byte may be part of.
var class = func() (t [256]uint8) {
	each := func(set string, bit uint8) {
		for i := range len(set) {
			t[set[i]] |= bit
		}
	}
	const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	each(alphanumeric+"!#$%&'*+-.^_`|~", token)
	each(alphanumeric+"-._", dns)
	each(alphanumeric+"-._~!$&'()*+;=%", name)
	each("0123456789abcdefABCDEF:.", literal)
	each("0123456789abcdefABCDEF", hexadecimal)
	for b := range t {
		if b >= ' ' && b != 0x7f || b == '\t' {
			t[b] |= text
		}
		if b > ' ' && b < 0x7f && b != '#' {
			t[b] |= target
		}
	}
	return t
}()

// fold maps upper case letters to lower case.
var fold = func() (t [256]byte) {
	for b := range t {
		t[b] = byte(b)
		if b >= 'A' && b <= 'Z' {
			t[b] += 'a' - 'A'
		}
	}
	return t
}()

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// lineEnd returns where, from i on, the first byte of b stands that no line may hold: a control character but HTAB. It
// looks at eight bytes at a time. Of the bytes in x that are below 0x20, or 0x7f, the marks in m may hold one too many,
// but only above a true one, so the lowest is true.
func lineEnd(b []byte, i int) int {
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		y := x ^ 0x7f*ones
		m := ((x-0x20*ones)&^x | (y-ones)&^y) & highs
		if m == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(m) / 8
		if b[i] != '\t' {
			return i
		}
		i++
	}
	for i < len(b) && class[b[i]]&text != 0 {
		i++
	}
	return i
}

// foldEqual compares s with a word in lower case.
func foldEqual(s []byte, word string) bool {
	if len(s) != len(word) {
		return false
	}
	for i, b := range s {
		if fold[b] != word[i] {
			return false
		}
	}
	return true
}

func digits(s []byte) bool {
	for _, b := range s {
		if b < '0' || b > '9' {
			return false
		}
	}
	return true
}

func blank(b byte) bool { return b == ' ' || b == '\t' }

// escape says whether s begins with a percent-encoded byte.
func escape(s []byte) bool {
	return len(s) >= 3 && s[0] == '%' && class[s[1]]&hexadecimal != 0 && class[s[2]]&hexadecimal != 0
}

func unhex(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return fold[b] - 'a' + 10
}
