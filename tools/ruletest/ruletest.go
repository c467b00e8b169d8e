package ruletest

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"splicenic/runtime/config"
	"splicenic/runtime/head"
	"splicenic/runtime/rule"
)

// Question is what is asked.
type Question struct {
	Service string     // empty: the only one, or the one that listens where a captured connection goes
	Client  netip.Addr // of a request that was not captured; zero: none, which no source fits
	Input   []byte     // a head, a hello or a capture
	Hello   []byte     // takes the place of Input where the service speaks TLS; nil: it does not
	ALPN    bool       // Hello offers protocols that were asked for
}

// Answer is what becomes of one request.
type Answer struct {
	Service string  `json:"service"`
	Client  string  `json:"client,omitempty"`
	Kind    string  `json:"kind"` // "head", "hello", "h2c" or "bytes"
	Request string  `json:"request"`
	Verdict string  `json:"verdict"` // "rule", "default", "none" or "refused"
	Rule    *Rule   `json:"rule"`    // nil: none took it
	To      string  `json:"to,omitempty"`
	Why     string  `json:"why,omitempty"`
	Others  []Other `json:"others"` // in the order of precedence
}

// Rule is a route of the configuration.
type Rule struct {
	Line  int    `json:"line"`
	Match string `json:"match"`
	To    string `json:"to"`
	Slow  string `json:"slow,omitempty"` // why the host decides on it
}

// Other is a route that did not take the request.
type Other struct {
	Rule
	Lost string `json:"lost"` // what of it does not fit, or "a rule before it"
}

// Test answers for each request that the input holds, by a configuration of which name stands in messages.
func Test(name, text string, q *Question) ([]Answer, error) {
	c, err := config.Load(name, []byte(text))
	if err != nil {
		return nil, err
	}
	if isCapture(q.Input) {
		return captured(c, q)
	}
	s, err := service(c, q.Service)
	if err != nil {
		return nil, err
	}
	input := q.Input
	switch {
	case s.Protocol == config.TLS && q.Hello != nil:
		input = q.Hello
	case q.ALPN:
		return nil, fmt.Errorf("service %s is protocol: %s, and alpn is part of a TLS hello", s.Name, s.Protocol)
	}
	return []Answer{answer(s, q.Client, input)}, nil
}

// service finds a service by its name, or the only one.
func service(c *config.Config, name string) (*config.Service, error) {
	var names []string
	for i := range c.Services {
		s := &c.Services[i]
		if s.Name == name || name == "" && len(c.Services) == 1 {
			return s, nil
		}
		names = append(names, s.Name)
	}
	if name == "" {
		return nil, fmt.Errorf("the configuration has %d services: name one of %s", len(names), strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no service %s: there is %s", name, strings.Join(names, ", "))
}

// answer decides on the first bytes of a connection.
func answer(s *config.Service, client netip.Addr, input []byte) Answer {
	a := Answer{Service: s.Name, Kind: "bytes", Others: []Other{}}
	if client.IsValid() {
		a.Client = client.String()
	}
	var r *rule.Request
	hello := len(input) > 0 && input[0] == 0x16
	switch {
	case s.Protocol == config.TCP:
		a.Request, a.Verdict, a.To = strconv.Itoa(len(input))+" bytes, unread", "default", describe(s.Default)
		return a
	case s.Protocol == config.HTTP && hello:
		return a.refuse("begins like TLS, and the service speaks HTTP")
	case s.Protocol == config.HTTP && bytes.HasPrefix(input, []byte(head.Preface)):
		a.Kind, a.Request = "h2c", "HTTP/2 without TLS"
		if s.H2C == "" {
			return a.refuse("no route of the service has protocol: h2c")
		}
		a.Verdict, a.To = "rule", "group "+s.H2C
		return a
	case s.Protocol == config.TLS:
		a.Kind = "hello"
		h, err := head.ParseHello(input)
		if err != nil {
			return a.refuse(err.Error())
		}
		r = h.Request()
		a.Request = "hello for " + strconv.Quote(h.SNI)
		if len(h.ALPN) > 0 {
			a.Request += ", alpn " + strings.Join(h.ALPN, ",")
		}
	default:
		a.Kind = "head"
		if end, _ := head.End(input, 0); end > 0 {
			input = input[:end]
		}
		limits := head.Limits{Target: s.MaxTarget, Head: s.MaxHead}
		if err := limits.Check(input); err != nil {
			return a.refuse(status(err))
		}
		h, err := head.Parse(input)
		if err != nil {
			return a.refuse(status(err))
		}
		r = h.Request()
		a.Request = h.Method + " " + printable(h.Host+h.Path)
		if h.Query != "" {
			a.Request += "?" + h.Query
		}
	}
	r.Source = client
	return a.match(s, r)
}

// printable percent-encodes what a decoded path may hold and a terminal would take for a command.
func printable(s string) string {
	var b strings.Builder
	for i, size := 0, 0; i < len(s); i += size {
		var r rune
		if r, size = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError && unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(s[i : i+size]) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// status names the answer that a client gets for what is wrong with its head.
func status(err error) string {
	var e *head.Error
	if errors.As(err, &e) && e.Status != 0 {
		return fmt.Sprintf("%d %s: %s", e.Status, head.StatusText(e.Status), e.Msg)
	}
	return err.Error()
}

func (a Answer) refuse(why string) Answer {
	a.Verdict, a.Why = "refused", why
	return a
}

// match asks the rules.
func (a Answer) match(s *config.Service, r *rule.Request) Answer {
	for _, w := range s.Matcher().Explain(r) {
		x := &s.Routes[w.Place]
		text := Rule{Line: x.At.Line, Match: x.Match.String(), To: describe(x.To), Slow: x.Match.Slow()}
		if text.Match == "" {
			text.Match = "every request"
		}
		if w.Took {
			a.Rule, a.Verdict, a.To = &text, "rule", text.To
			continue
		}
		a.Others = append(a.Others, Other{Rule: text, Lost: w.Missed})
	}
	switch {
	case a.Rule != nil:
	case !s.Default.Nowhere():
		a.Verdict, a.To, a.Why = "default", describe(s.Default), "no rule takes it"
	case s.Protocol == config.TLS:
		a.Verdict, a.Why = "none", "no rule takes it and there is no default: the client gets an alert"
	default:
		a.Verdict, a.Why = "none", "no rule takes it and there is no default: the client gets 404 Not Found"
	}
	return a
}

// Write writes answers for people.
func Write(w io.Writer, answers []Answer) {
	for i := range answers {
		a := &answers[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		from := ""
		if a.Client != "" {
			from = " from " + a.Client
		}
		fmt.Fprintf(w, "service %s: %s%s\n", a.Service, cmp.Or(a.Request, a.Kind), from)
		switch {
		case a.Rule != nil:
			fmt.Fprintf(w, "%s, by line %d: %s\n", a.To, a.Rule.Line, a.Rule.Match)
			if a.Rule.Slow != "" {
				fmt.Fprintf(w, "slow: the host decides, since %s\n", a.Rule.Slow)
			}
		case a.To != "" && a.Why != "":
			fmt.Fprintf(w, "%s, by %s: %s\n", a.To, a.Verdict, a.Why)
		case a.To != "":
			fmt.Fprintf(w, "%s, by %s\n", a.To, a.Verdict)
		default:
			fmt.Fprintf(w, "%s: %s\n", a.Verdict, a.Why)
		}
		if len(a.Others) == 0 {
			continue
		}
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "LINE\tNOT\tTO\tBECAUSE OF")
		for _, o := range a.Others {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", o.Line, o.Match, o.To, o.Lost)
		}
		t.Flush()
	}
}

// describe names a target.
func describe(t config.Target) string {
	if t.Reply != nil {
		return t.String()
	}
	return "group " + t.Group
}

// Typed makes a head of a text with the line ends of an editor.
func Typed(text string) []byte {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	return []byte(strings.ReplaceAll(text, "\n", "\r\n") + "\r\n\r\n")
}

// Hello makes what a TLS client sends first for a URL, such as "https://a.example", with the protocols that it offers.
func Hello(url string, alpn []string) ([]byte, error) {
	_, host, _ := strings.Cut(url, "://")
	if n := strings.IndexAny(host, "/?:"); n >= 0 {
		host = host[:n]
	}
	if strings.HasPrefix(host, "[") { // an address, which no hello names
		host = ""
	}
	client, server := net.Pipe()
	defer server.Close() // which ends the handshake
	go func() {
		defer client.Close() // where there is no hello either
		_ = tls.Client(client, &tls.Config{ServerName: host, NextProtos: alpn, InsecureSkipVerify: true}).Handshake()
	}()
	record := make([]byte, 5+1<<14) // a hello of a few names fits one record (RFC 8446 5.1)
	if _, err := io.ReadFull(server, record[:5]); err != nil {
		return nil, fmt.Errorf("no hello can be made for %q", url)
	}
	n := 5 + int(binary.BigEndian.Uint16(record[3:]))
	if n > len(record) {
		return nil, fmt.Errorf("no hello can be made for %q", url)
	}
	_, err := io.ReadFull(server, record[5:n])
	return record[:n], err
}

// Head makes the head of a request for a URL, such as "http://a.example/x?y", without a host "/x", with fields "Name: value".
func Head(method, url string, fields []string) ([]byte, error) {
	host, target := "", url
	if _, rest, ok := strings.Cut(url, "://"); ok {
		n := strings.IndexAny(rest, "/?")
		if n < 0 {
			n = len(rest)
		}
		if host, target = rest[:n], rest[n:]; !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
	}
	if host == "" && target != "*" && method != "CONNECT" && !strings.HasPrefix(target, "/") {
		return nil, fmt.Errorf("%q is no URL: write http://%s, or the path alone as /path", url, url)
	}
	if slices.ContainsFunc(append([]string{method, url}, fields...), func(s string) bool { return strings.ContainsAny(s, "\r\n") }) {
		return nil, errors.New("a line break would end the line of a head; write such a head into a file")
	}
	text := method + " " + target + " HTTP/1.1\r\n"
	if !slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(strings.ToLower(f), "host:") }) {
		text += "Host: " + host + "\r\n"
	}
	for _, f := range fields {
		text += f + "\r\n"
	}
	return []byte(text + "\r\n"), nil
}
