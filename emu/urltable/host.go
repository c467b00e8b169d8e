package urltable

// cutPort checks "host [":" port]" (RFC 3986 3.2.2) and returns the host, an IPv6 literal with its brackets. Labels within a
// name are not empty. An empty host has no port either.
func cutPort(s []byte) (host []byte, ok bool) {
	i := 0
	if len(s) > 0 && s[0] == '[' {
		for i = 1; i < len(s) && class[s[i]]&literal != 0; i++ {
		}
		if i == len(s) || s[i] != ']' {
			return nil, false
		}
		if _, ok := address(s[1:i]); !ok {
			return nil, false
		}
		i++
	} else {
		for ; i < len(s) && class[s[i]]&name != 0; i++ {
			if s[i] == '%' && !escape(s[i:]) || s[i] == '.' && i > 0 && s[i-1] == '.' {
				return nil, false
			}
		}
	}
	if i == len(s) {
		return s, true
	}
	if i == 0 || s[i] != ':' || !digits(s[i+1:]) {
		return nil, false
	}
	return s[:i], true
}

// address reads the text between the brackets of an IPv6 literal (RFC 3986 3.2.2): groups of at most four hexadecimal
// digits, one gap at most, a dotted quad at the end at most. Zones are no part of it.
func address(s []byte) (a [8]uint16, ok bool) {
	n, gap := 0, -1 // groups so far, and how many of them stand before the gap
	if len(s) >= 2 && s[0] == ':' && s[1] == ':' {
		gap, s = 0, s[2:]
	}
	for len(s) > 0 {
		v, k := 0, 0
		for k < len(s) && k < 5 && class[s[k]]&hexadecimal != 0 {
			v = v<<4 | int(unhex(s[k]))
			k++
		}
		if k < len(s) && s[k] == '.' {
			q, ok := quad(s)
			if !ok || n > 6 {
				return a, false
			}
			a[n], a[n+1] = uint16(q>>16), uint16(q)
			n += 2
			break
		}
		if k == 0 || k > 4 || n == 8 {
			return a, false
		}
		a[n] = uint16(v)
		n++
		if s = s[k:]; len(s) == 0 {
			break
		}
		if s[0] != ':' || len(s) == 1 {
			return a, false
		}
		if s = s[1:]; s[0] != ':' {
			continue
		}
		if gap >= 0 {
			return a, false
		}
		gap, s = n, s[1:]
	}
	if gap < 0 {
		return a, n == 8
	}
	if n == 8 { // the gap stands for one group at least
		return a, false
	}
	tail := n - gap
	copy(a[8-tail:], a[gap:n])
	for i := gap; i < 8-tail; i++ {
		a[i] = 0
	}
	return a, true
}

// quad reads a dotted IPv4 address.
func quad(s []byte) (v uint32, ok bool) {
	for part := 0; part < 4; part++ {
		n, b := 0, 0
		for n < len(s) && n < 3 && s[n] >= '0' && s[n] <= '9' {
			b = b*10 + int(s[n]-'0')
			n++
		}
		if n == 0 || b > 255 || n > 1 && s[0] == '0' {
			return 0, false
		}
		v = v<<8 | uint32(b)
		s = s[n:]
		if part == 3 {
			return v, len(s) == 0
		}
		if len(s) == 0 || s[0] != '.' {
			return 0, false
		}
		s = s[1:]
	}
	return 0, false
}

// appendLiteral writes an address in brackets in the one form of RFC 5952: small letters, no leading zeros, the first of the
// longest runs of zero groups as gap, an IPv4-mapped address dotted.
func appendLiteral(to []byte, a *[8]uint16) []byte {
	to = append(to, '[')
	if a[0]|a[1]|a[2]|a[3]|a[4] == 0 && a[5] == 0xffff {
		to = append(to, "::ffff:"...)
		for i, b := range [4]uint16{a[6] >> 8, a[6] & 0xff, a[7] >> 8, a[7] & 0xff} {
			if i > 0 {
				to = append(to, '.')
			}
			if b >= 100 {
				to = append(to, '0'+byte(b/100))
			}
			if b >= 10 {
				to = append(to, '0'+byte(b/10%10))
			}
			to = append(to, '0'+byte(b%10))
		}
		return append(to, ']')
	}
	gap, groups := 8, 1 // a single zero group is no gap
	for i := 0; i < 8; i++ {
		n := 0
		for i+n < 8 && a[i+n] == 0 {
			n++
		}
		if n > groups {
			gap, groups = i, n
		}
		i += n
	}
	for i := 0; i < 8; i++ {
		if i == gap {
			to = append(to, "::"...)
			i += groups - 1
			continue
		}
		if i > 0 && i != gap+groups {
			to = append(to, ':')
		}
		for shift := 12; shift >= 0; shift -= 4 {
			if d := a[i] >> shift; d != 0 || shift == 0 {
				to = append(to, "0123456789abcdef"[d&0xf])
			}
		}
	}
	return append(to, ']')
}
