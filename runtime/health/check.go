package health

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// A Kind is a way to ask a server whether it works.
type Kind uint8

// The kinds.
const (
	TCP  Kind = iota // it takes a connection
	HTTP             // it answers a request with a status
	Ping             // it answers an ICMP echo
	UDP              // it answers a datagram, or at least nobody says that it cannot be reached
)

// String returns the kind as the configuration writes it.
func (k Kind) String() string { return [...]string{"tcp", "http", "ping", "udp"}[k&3] }

// A Range is HTTP statuses from First to Last.
type Range struct{ First, Last uint16 }

// MaxRanges is how many Ranges a check has at most.
const MaxRanges = 8

// A Check says how a server is asked. It can be compared.
type Check struct {
	Kind     Kind
	Port     uint16        // zero: the server's
	Interval time.Duration // from one to the next; zero: 2 s
	Timeout  time.Duration // of one; zero: 1 s
	Rise     int           // good ones in a row that make a server up; zero: 2
	Fall     int           // bad ones in a row that make it down; zero: 3
	Down     bool          // it is down until checks say something else

	Path, Host string           // of the request; empty: "/", and the server's address
	Status     [MaxRanges]Range // that are good; without any: 200 to 399

	Send   string // in the datagram
	Expect string // what the answer begins with; empty: any answer is good, and so is none
}

// A CheckKey names a check of a server.
type CheckKey struct {
	Server netip.AddrPort
	Check  Check
}

// A CheckTarget is a server that is to be asked.
type CheckTarget struct {
	CheckKey
	From  netip.Addr // an address of the card's from which the server can be reached; invalid: there is none
	Ready bool       // its next hop is resolved
}

// withDefaults puts the defaults in place of zeros.
func (c Check) withDefaults() Check {
	c.Interval, c.Timeout = cmp.Or(c.Interval, 2*time.Second), cmp.Or(c.Timeout, time.Second)
	c.Rise, c.Fall = cmp.Or(c.Rise, 2), cmp.Or(c.Fall, 3)
	return c
}

// to is where the check goes.
func (k *CheckKey) to() netip.AddrPort {
	return netip.AddrPortFrom(k.Server.Addr(), cmp.Or(k.Check.Port, k.Server.Port()))
}

// request is what an HTTP check asks.
func (k *CheckKey) request() string {
	host := k.Check.Host
	if host == "" {
		to := k.to()
		if host = to.String(); to.Port() == 80 {
			if host = to.Addr().String(); to.Addr().Is6() {
				host = "[" + host + "]"
			}
		}
	}
	return "GET " + cmp.Or(k.Check.Path, "/") + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: splicenic-check\r\nAccept: */*\r\nConnection: close\r\n\r\n"
}

// good says whether a status is one that the check takes.
func (c *Check) good(status int) bool {
	if c.Status == [MaxRanges]Range{} {
		return status >= 200 && status <= 399
	}
	return slices.ContainsFunc(c.Status[:], func(r Range) bool {
		return r.First > 0 && status >= int(r.First) && status <= int(r.Last)
	})
}

// describe is a key as text, the same for the same key.
func (k *CheckKey) describe() string {
	c := &k.Check
	s := k.Server.String() + " " + c.Kind.String() + " " + strconv.Itoa(int(c.Port)) + " " + c.Interval.String() + " " + c.Timeout.String() +
		" " + strconv.Itoa(c.Rise) + " " + strconv.Itoa(c.Fall) + " " + strconv.FormatBool(c.Down)
	for _, t := range []string{c.Path, c.Host, c.Send, c.Expect} {
		s += " " + strconv.Quote(t)
	}
	for _, r := range c.Status {
		s += " " + strconv.Itoa(int(r.First)) + "-" + strconv.Itoa(int(r.Last))
	}
	return s
}
