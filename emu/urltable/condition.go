package urltable

import "splicenic/regs"

// maxNets is how many networks a condition may list.
const maxNets = 32

// fulfils says whether a request fulfils all conditions of a rule.
func (t *Tables) fulfils(conditions uint32, r *Request) bool {
	for i := range min(regs.RuleConditionsCount(conditions), MaxConditions) {
		if !t.fulfilled(t.node(regs.RuleConditionsFirst(conditions)+i), r) {
			return false
		}
	}
	return true
}

// A test is a condition in the form that it is compared in.
type test struct {
	name, value stored
	means       uint32
}

// A stored text is some bytes of an image.
type stored struct {
	words []uint32
	at, n int
}

func (x *stored) byte(i int) byte {
	i += x.at
	return byte(x.words[i/4] >> (i % 4 * 8))
}

// is compares the text with s.
func (x *stored) is(s []byte) bool { return x.n == len(s) && x.begins(s) }

// begins says whether s begins with the text.
func (x *stored) begins(s []byte) bool {
	if x.n > len(s) {
		return false
	}
	for i := range x.n {
		if x.byte(i) != s[i] {
			return false
		}
	}
	return true
}

// folded compares the text, which is in lower case, with s.
func (x *stored) folded(s []byte) bool {
	if x.n != len(s) {
		return false
	}
	for i, b := range s {
		if x.byte(i) != fold[b] {
			return false
		}
	}
	return true
}

// passes compares a value.
func (c *test) passes(s []byte) bool {
	switch c.means {
	case regs.UrlConditionControlTestEqual:
		return c.value.is(s)
	case regs.UrlConditionControlTestPrefix:
		return c.value.begins(s)
	}
	return c.means == regs.UrlConditionControlTestPresent
}

// fulfilled tests one condition.
func (t *Tables) fulfilled(e state, r *Request) bool {
	if e == nil || regs.UrlConditionControlValid(e[regs.UrlConditionControl]) == 0 {
		return false
	}
	control, length := e[regs.UrlConditionControl], e[regs.UrlConditionLength]
	subject := regs.UrlConditionControlSubject(control)
	if subject == regs.UrlConditionControlSubjectSource {
		return t.Source(regs.UrlConditionAtNode(e[regs.UrlConditionAt]), regs.UrlConditionLengthName(length), &r.Source, r.IPv6)
	}
	name, value := int(regs.UrlConditionLengthName(length)), int(regs.UrlConditionLengthValue(length))
	words := []uint32(e[regs.UrlConditionText:])
	if regs.UrlConditionControlFar(control) != 0 {
		words = t.far(regs.UrlConditionAtNode(e[regs.UrlConditionAt]), name+value)
	}
	if name+value > 4*len(words) {
		return false
	}
	c := test{stored{words, 0, name}, stored{words, name, value}, regs.UrlConditionControlTest(control)}
	switch subject {
	case regs.UrlConditionControlSubjectMethod:
		return c.method(r.Method)
	case regs.UrlConditionControlSubjectHeader:
		return c.header(r)
	case regs.UrlConditionControlSubjectQuery:
		return c.query(r.Query)
	case regs.UrlConditionControlSubjectCookie:
		return c.cookies(r)
	case regs.UrlConditionControlSubjectAlpn:
		return c.alpn(r.ALPN)
	}
	return false
}

// Source looks for an address in a list of networks: count url_net entries from first on.
func (t *Tables) Source(first, count uint32, a *[4]uint32, ipv6 bool) bool {
	kind := uint32(regs.KindIpv4)
	if ipv6 {
		kind = regs.KindIpv6
	}
	for i := range min(count, maxNets) {
		e := t.node(first + i)
		if e == nil {
			return false
		}
		control := e[regs.UrlNetControl]
		if regs.UrlNetControlValid(control) != 0 && regs.UrlNetControlKind(control) == kind &&
			within(e[regs.UrlNetAddress:], a, regs.UrlNetControlBits(control), ipv6) {
			return true
		}
	}
	return false
}

// within compares the upper bits of two addresses.
func within(net []uint32, a *[4]uint32, n uint32, ipv6 bool) bool {
	top := 0
	if ipv6 {
		top = 3
	}
	for i := top; i >= 0 && n > 0; i-- {
		if n < 32 {
			return (net[i]^a[i])>>(32-n) == 0
		}
		if net[i] != a[i] {
			return false
		}
		n -= 32
	}
	return n == 0
}

// method looks for the method among those that the value lists.
func (c *test) method(method []byte) bool {
	if len(method) == 0 {
		return false
	}
	for i := 0; i <= c.value.n; {
		end := i
		for end < c.value.n && c.value.byte(end) != ',' {
			end++
		}
		one := stored{c.value.words, c.value.at + i, end - i}
		if one.is(method) {
			return true
		}
		i = end + 1
	}
	return false
}

// header tests the fields with the name.
func (c *test) header(r *Request) bool {
	for i := range r.NFields {
		if c.name.folded(r.Name(i)) && c.passes(r.Value(i)) {
			return true
		}
	}
	return false
}

// cookies tests the cookies with the name in all Cookie fields (RFC 6265 4.2.1).
func (c *test) cookies(r *Request) bool {
	for i := range r.NFields {
		if foldEqual(r.Name(i), "cookie") && c.cookie(r.Value(i)) {
			return true
		}
	}
	return false
}

// cookie tests the cookies of one field.
func (c *test) cookie(list []byte) bool {
	for len(list) > 0 {
		var one []byte
		one, list = cut(list, ';')
		for len(one) > 0 && blank(one[0]) {
			one = one[1:]
		}
		for len(one) > 0 && blank(one[len(one)-1]) {
			one = one[:len(one)-1]
		}
		if name, value := cut(one, '='); len(one) > 0 && c.name.is(name) && c.passes(value) {
			return true
		}
	}
	return false
}

// query tests the parameters with the name.
func (c *test) query(list []byte) bool {
	for len(list) > 0 {
		var one []byte
		one, list = cut(list, '&')
		if len(one) == 0 {
			continue
		}
		name, value := cut(one, '=')
		if !c.name.decoded(name, false) {
			continue
		}
		switch c.means {
		case regs.UrlConditionControlTestPresent:
			return true
		case regs.UrlConditionControlTestEqual, regs.UrlConditionControlTestPrefix:
			if c.value.decoded(value, c.means == regs.UrlConditionControlTestPrefix) {
				return true
			}
		}
	}
	return false
}

// decoded compares the text with s, or with the begin of s, while it decodes the percent-encoded bytes of s. What is no
// percent-encoded byte stands for itself.
func (x *stored) decoded(s []byte, prefix bool) bool {
	k := 0
	for i := 0; i < len(s); {
		if k == x.n {
			return prefix
		}
		b, n := s[i], 1
		if b == '%' && escape(s[i:]) {
			b, n = unhex(s[i+1])<<4|unhex(s[i+2]), 3
		}
		if x.byte(k) != b {
			return false
		}
		k++
		i += n
	}
	return k == x.n
}

// alpn looks for the protocol among those that a ClientHello offers, each behind its length.
func (c *test) alpn(list []byte) bool {
	for len(list) > 0 {
		n := min(int(list[0])+1, len(list))
		if c.passes(list[1:n]) {
			return true
		}
		list = list[n:]
	}
	return false
}

// cut splits s at the first b.
func cut(s []byte, b byte) (before, after []byte) {
	for i := range s {
		if s[i] == b {
			return s[:i], s[i+1:]
		}
	}
	return s, nil
}
