package module

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
)

// FTP reads control connections of the File Transfer Protocol (RFC 959, RFC 1123 4.1, RFC 2428). Where the server is asked to
// connect (PORT, EPRT) it may only be to the client itself (RFC 2577); with fullnat the client's address becomes one of
// the card's. Where the client is asked to (PASV) the server's address becomes the VIP; EPSV names a port alone. From
// AUTH TLS on (RFC 4217) nothing can be read: such clients need EPSV and a listener for the server's ports.
type FTP struct{}

// Begin makes the reader of a connection.
func (FTP) Begin(c Conn) Reader { return &ftp{conn: c} }

type ftp struct {
	conn Conn
	want string // PASV, EPSV or AUTH: the command whose reply is still to come
}

// bare is a line without its end and the Telnet commands that RFC 959 puts before ABOR.
func bare(line []byte) []byte {
	line = bytes.TrimRight(line, "\r\n")
	for len(line) >= 2 && line[0] == 0xff && line[1] >= 240 {
		if line[1] >= 251 { // WILL, WON'T, DO, DON'T have an operand
			if len(line) < 3 {
				return nil
			}
			line = line[3:]
			continue
		}
		line = line[2:]
	}
	return line
}

// command splits a line into its verb, in upper case, and the rest.
func command(line []byte) (verb string, rest []byte) {
	line = bytes.TrimLeft(bare(line), " ")
	n := bytes.IndexAny(line, " \t")
	if n < 0 {
		n = len(line)
	}
	return string(bytes.ToUpper(line[:min(n, 8)])), bytes.Trim(line[n:], " \t")
}

func (f *ftp) Holds(dir Direction, begin []byte) bool {
	if dir == FromServer {
		return f.want == "PASV" && (bytes.HasPrefix(begin, []byte("227")) || bytes.HasPrefix([]byte("227"), begin))
	}
	begin = bytes.ToUpper(bytes.TrimLeft(bare(begin), " "))
	for _, verb := range []string{"PORT", "EPRT"} {
		if bytes.HasPrefix(begin, []byte(verb)) || bytes.HasPrefix([]byte(verb), begin) {
			return true
		}
	}
	return len(begin) == 0
}

func (f *ftp) Read(dir Direction, line []byte) Verdict {
	if dir == FromServer {
		return f.reply(line)
	}
	verb, rest := command(line)
	switch verb {
	case "PORT":
		return f.active(rest, portArgument, formatPORT)
	case "EPRT":
		return f.active(rest, eprtArgument, formatEPRT)
	case "PASV":
		f.want = "PASV"
	case "EPSV":
		f.want = "EPSV"
		if bytes.EqualFold(rest, []byte("ALL")) {
			f.want = "" // a promise to use nothing else (RFC 2428, 4), and no request
		}
	case "AUTH":
		f.want = "AUTH"
	}
	return Verdict{}
}

// refused is what the server gets in the place of a command that asks it to connect to somebody else, or of one that says
// nothing: it refuses that itself, so that the client hears of it.
func refused(note Note, verb string) Verdict {
	return Verdict{Note: note, Replace: []byte(verb + " 0\r\n")}
}

// active reads a command that asks the server to connect.
func (f *ftp) active(rest []byte, parse func([]byte) (netip.AddrPort, bool), format func(netip.AddrPort) string) Verdict {
	to, ok := parse(rest)
	verb := format(netip.AddrPort{})
	switch {
	case !ok:
		return refused(Unreadable, verb)
	case to.Addr() != f.conn.Client.Addr() || to.Port() < 1024: // RFC 2577, 3
		return refused(Foreign, verb)
	}
	e := Expectation{FromServer: true, At: to, Client: to}
	if !f.conn.translated() {
		return Verdict{Note: Expects, Expect: []Expectation{e}}
	}
	port, ok := f.conn.Port()
	if !ok {
		return refused(NoPort, verb)
	}
	e.At = netip.AddrPortFrom(f.conn.Local.Addr(), port)
	if e.At.Addr().Is4() != to.Addr().Is4() { // the server is of the other family, which PORT has no words for
		format = formatEPRT
	}
	return Verdict{Note: Altered, Replace: []byte(format(e.At)), Expect: []Expectation{e}}
}

// portArgument reads "h1,h2,h3,h4,p1,p2".
func portArgument(b []byte) (netip.AddrPort, bool) {
	n, used := sixNumbers(b)
	if used != len(b) || used == 0 {
		return netip.AddrPort{}, false
	}
	return addressPort(n), true
}

func addressPort(n [6]byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[:4])), uint16(n[4])<<8|uint16(n[5]))
}

// sixNumbers reads six decimal numbers with commas between them, and says how many bytes they take; zero: they are none.
// Spaces may stand beside the commas, as some servers have them.
func sixNumbers(b []byte) (n [6]byte, used int) {
	at := 0
	spaces := func() {
		for at < len(b) && b[at] == ' ' {
			at++
		}
	}
	for i := range n {
		if i > 0 {
			spaces()
			if at == len(b) || b[at] != ',' {
				return n, 0
			}
			at++
			spaces()
		}
		v, begin := 0, at
		for at < len(b) && at < begin+3 && b[at] >= '0' && b[at] <= '9' {
			v = 10*v + int(b[at]-'0')
			at++
		}
		if at == begin || v > 255 || at < len(b) && b[at] >= '0' && b[at] <= '9' {
			return n, 0
		}
		n[i] = byte(v)
	}
	return n, at
}

// eprtArgument reads "<d>net<d>address<d>port<d>" (RFC 2428, 2).
func eprtArgument(b []byte) (a netip.AddrPort, ok bool) {
	if len(b) < 2 || b[0] < 33 || b[0] > 126 {
		return a, false
	}
	part := bytes.Split(b, b[:1])
	if len(part) != 5 || len(part[0]) != 0 || len(part[4]) != 0 {
		return a, false
	}
	addr, err := netip.ParseAddr(string(part[2]))
	port, err2 := strconv.ParseUint(string(part[3]), 10, 16)
	want := "2"
	if addr.Is4() {
		want = "1"
	}
	if err != nil || err2 != nil || string(part[1]) != want || addr.Zone() != "" || port == 0 {
		return a, false
	}
	return netip.AddrPortFrom(addr, uint16(port)), true
}

// formatPORT writes the command; of the zero address the verb alone.
func formatPORT(a netip.AddrPort) string {
	if !a.IsValid() {
		return "PORT"
	}
	return "PORT " + six(a) + "\r\n"
}

func six(a netip.AddrPort) string {
	b := a.Addr().As4()
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d", b[0], b[1], b[2], b[3], a.Port()>>8, a.Port()&0xff)
}

// formatEPRT is formatPORT for both families.
func formatEPRT(a netip.AddrPort) string {
	if !a.IsValid() {
		return "EPRT"
	}
	net := 2
	if a.Addr().Is4() {
		net = 1
	}
	return fmt.Sprintf("EPRT |%d|%s|%d|\r\n", net, a.Addr(), a.Port())
}

// code is the number that a reply begins with, and whether the reply ends with this line; zero: it is none.
func code(line []byte) (n int, last bool) {
	if len(line) < 3 {
		return 0, false
	}
	n, err := strconv.Atoi(string(line[:3]))
	if err != nil || n < 100 {
		return 0, false
	}
	return n, len(line) == 3 || line[3] != '-'
}

// reply reads a line of the server's. Only what was asked for counts: a server can be made to say much.
func (f *ftp) reply(line []byte) Verdict {
	text := bytes.TrimRight(line, "\r\n")
	n, last := code(text)
	if n == 0 || f.want == "" {
		return Verdict{}
	}
	asked := f.want
	if last && n >= 200 {
		f.want = ""
	}
	switch {
	case asked == "AUTH" && (n == 234 || n == 334) && last:
		return Verdict{Note: Encrypted, Off: n == 234}
	case asked == "PASV" && n == 227:
		return f.passive(line, text)
	case asked == "EPSV" && n == 229:
		port, ok := extendedPort(text)
		if !ok {
			return Verdict{Note: Unreadable}
		}
		return Verdict{Note: Expects, Expect: []Expectation{f.passiveTo(port)}}
	}
	return Verdict{}
}

func (f *ftp) passiveTo(port uint16) Expectation {
	return Expectation{At: netip.AddrPortFrom(f.conn.VIP.Addr(), port), Client: f.conn.Client}
}

// passive reads a 227. The numbers begin with the first digit behind the code (RFC 1123, 4.1.2.6), whatever stands around
// them.
func (f *ftp) passive(line, text []byte) Verdict {
	for at := 3; at < len(text); at++ {
		if text[at] < '0' || text[at] > '9' {
			continue
		}
		n, used := sixNumbers(text[at:])
		if used == 0 {
			for at < len(text) && text[at] >= '0' && text[at] <= '9' { // a number in the words before
				at++
			}
			continue
		}
		to := addressPort(n)
		if vip := f.conn.VIP.Addr(); to.Addr() == vip {
			return Verdict{Note: Expects, Expect: []Expectation{f.passiveTo(to.Port())}}
		}
		if to.Addr() != f.conn.Server.Addr() && !to.Addr().IsUnspecified() {
			return Verdict{Note: Foreign} // the client connects where it wants to
		}
		if !f.conn.VIP.Addr().Is4() {
			return Verdict{Note: Unreadable} // no words for the client's family
		}
		out := append([]byte{}, line[:at]...)
		out = append(out, six(netip.AddrPortFrom(f.conn.VIP.Addr(), to.Port()))...)
		out = append(out, line[at+used:]...)
		return Verdict{Note: Altered, Replace: out, Expect: []Expectation{f.passiveTo(to.Port())}}
	}
	return Verdict{Note: Unreadable}
}

// extendedPort reads "(<d><d><d>port<d>)" (RFC 2428, 3).
func extendedPort(text []byte) (uint16, bool) {
	at := bytes.IndexByte(text, '(')
	if at < 0 || len(text) < at+6 {
		return 0, false
	}
	b, d := text[at+4:], text[at+1]
	if d < 33 || d > 126 || text[at+2] != d || text[at+3] != d {
		return 0, false
	}
	end := bytes.IndexByte(b, d)
	if end < 0 || end+1 >= len(b) || b[end+1] != ')' {
		return 0, false
	}
	port, err := strconv.ParseUint(string(b[:end]), 10, 16)
	return uint16(port), err == nil && port != 0
}
