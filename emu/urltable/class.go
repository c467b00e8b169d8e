package urltable

// The classes of a byte, as bits.
const (
	token       = 1 << iota // of a method or field name (RFC 9110 5.6.2)
	text                    // of a line: no control character but HTAB
	name                    // of a registered name (RFC 3986 3.2.2)
	literal                 // between the brackets of an IPv6 literal
	hexadecimal             // a digit of base 16
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
	each(alphanumeric+"-._~!$&'()*+,;=%", name)
	each("0123456789abcdefABCDEF:.", literal)
	each("0123456789abcdefABCDEF", hexadecimal)
	for b := range t {
		if b >= ' ' && b != 0x7f || b == '\t' {
			t[b] |= text
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

// trim cuts spaces and tabs off both ends.
func trim(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

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
