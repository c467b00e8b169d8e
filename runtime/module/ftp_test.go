package module

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

var compare = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func nat4() Conn {
	return Conn{Client: addr("198.18.0.10:4000"), VIP: addr("198.18.0.80:21"), Server: addr("198.18.1.11:21"), Local: addr("198.18.0.10:4000")}
}

func full4() Conn {
	c := nat4()
	c.Local, c.Port = addr("198.18.1.100:2000"), func() (uint16, bool) { return 61440, true }
	return c
}

func nat6() Conn {
	return Conn{Client: addr("[2001:db8::10]:4000"), VIP: addr("[2001:db8::80]:21"), Server: addr("[2001:db8:1::11]:21"), Local: addr("[2001:db8::10]:4000")}
}

func full6() Conn {
	c := nat6()
	c.Local, c.Port = addr("[2001:db8:1::100]:2000"), func() (uint16, bool) { return 61440, true }
	return c
}

func toServer(at, client string) []Expectation {
	return []Expectation{{FromServer: true, At: addr(at), Client: addr(client)}}
}

func toVIP(c Conn, port uint16) []Expectation {
	return []Expectation{{At: netip.AddrPortFrom(c.VIP.Addr(), port), Client: c.Client}}
}

func TestFTP(t *testing.T) {
	none := nat4()
	none.Local, none.Port = addr("198.18.1.100:2000"), func() (uint16, bool) { return 0, false }
	for _, tt := range []struct {
		name    string
		conn    Conn
		command string // of the client's, before a reply; empty: the text is the client's own
		text    string
		note    Note
		replace string
		expect  []Expectation
	}{
		{"PORT", nat4(), "", "PORT 198,18,0,10,195,80\r\n", Expects, "", toServer("198.18.0.10:50000", "198.18.0.10:50000")},
		{"port, with a bare line feed", nat4(), "", "port 198,18,0,10,195,80\n", Expects, "", toServer("198.18.0.10:50000", "198.18.0.10:50000")},
		{"PORT behind Telnet's interrupt", nat4(), "", "\xff\xf4\xff\xf2PORT 198,18,0,10,195,80\r\n", Expects, "", toServer("198.18.0.10:50000", "198.18.0.10:50000")},
		{"PORT with fullnat", full4(), "", "PORT 198,18,0,10,195,80\r\n", Altered, "PORT 198,18,1,100,240,0\r\n", toServer("198.18.1.100:61440", "198.18.0.10:50000")},
		{"PORT, no port free", none, "", "PORT 198,18,0,10,195,80\r\n", NoPort, "PORT 0\r\n", nil},
		{"PORT of somebody else", nat4(), "", "PORT 198,18,0,11,195,80\r\n", Foreign, "PORT 0\r\n", nil},
		{"PORT to a service", nat4(), "", "PORT 198,18,0,10,0,25\r\n", Foreign, "PORT 0\r\n", nil},
		{"PORT, five numbers", nat4(), "", "PORT 198,18,0,10,195\r\n", Unreadable, "PORT 0\r\n", nil},
		{"PORT, seven", nat4(), "", "PORT 198,18,0,10,195,80,1\r\n", Unreadable, "PORT 0\r\n", nil},
		{"PORT, a number too large", nat4(), "", "PORT 198,18,0,10,256,80\r\n", Unreadable, "PORT 0\r\n", nil},
		{"PORT alone", nat4(), "", "PORT\r\n", Unreadable, "PORT 0\r\n", nil},
		{"PORTS is another command", nat4(), "", "PORTS 198,18,0,10,195,80\r\n", Nothing, "", nil},
		{"EPRT", nat6(), "", "EPRT |2|2001:db8::10|50000|\r\n", Expects, "", toServer("[2001:db8::10]:50000", "[2001:db8::10]:50000")},
		{"EPRT of IPv4", nat4(), "", "EPRT |1|198.18.0.10|50000|\r\n", Expects, "", toServer("198.18.0.10:50000", "198.18.0.10:50000")},
		{"EPRT, another delimiter", nat4(), "", "EPRT !1!198.18.0.10!50000!\r\n", Expects, "", toServer("198.18.0.10:50000", "198.18.0.10:50000")},
		{"EPRT with fullnat", full6(), "", "EPRT |2|2001:db8:0:0::10|50000|\r\n", Altered, "EPRT |2|2001:db8:1::100|61440|\r\n", toServer("[2001:db8:1::100]:61440", "[2001:db8::10]:50000")},
		{"EPRT of somebody else", nat6(), "", "EPRT |2|2001:db8::11|50000|\r\n", Foreign, "EPRT 0\r\n", nil},
		{"EPRT, family and address differ", nat6(), "", "EPRT |1|2001:db8::10|50000|\r\n", Unreadable, "EPRT 0\r\n", nil},
		{"EPRT, port zero", nat6(), "", "EPRT |2|2001:db8::10|0|\r\n", Unreadable, "EPRT 0\r\n", nil},
		{"EPRT with a zone", nat6(), "", "EPRT |2|fe80::1%eth0|50000|\r\n", Unreadable, "EPRT 0\r\n", nil},

		{"227, as RFC 959 has it", nat4(), "PASV", "227 Entering Passive Mode (198,18,1,11,195,80).\r\n", Altered, "227 Entering Passive Mode (198,18,0,80,195,80).\r\n", toVIP(nat4(), 50000)},
		{"227 without parentheses", nat4(), "PASV", "227 Entering Passive Mode 198,18,1,11,195,80\r\n", Altered, "227 Entering Passive Mode 198,18,0,80,195,80\r\n", toVIP(nat4(), 50000)},
		{"227 with an equals sign", nat4(), "PASV", "227 =198,18,1,11,195,80\r\n", Altered, "227 =198,18,0,80,195,80\r\n", toVIP(nat4(), 50000)},
		{"227 with spaces", nat4(), "PASV", "227 Entering Passive Mode (198, 18, 1, 11, 195, 80)\r\n", Altered, "227 Entering Passive Mode (198,18,0,80,195,80)\r\n", toVIP(nat4(), 50000)},
		{"227 with a number before", nat4(), "PASV", "227 Mode 2 is (198,18,1,11,195,80)\r\n", Altered, "227 Mode 2 is (198,18,0,80,195,80)\r\n", toVIP(nat4(), 50000)},
		{"227 in several lines", nat4(), "PASV", "227-Entering Passive Mode (198,18,1,11,195,80)\r\n", Altered, "227-Entering Passive Mode (198,18,0,80,195,80)\r\n", toVIP(nat4(), 50000)},
		{"227 of the VIP", nat4(), "PASV", "227 Entering Passive Mode (198,18,0,80,195,80).\r\n", Expects, "", toVIP(nat4(), 50000)},
		{"227 of no address", nat4(), "PASV", "227 Entering Passive Mode (0,0,0,0,195,80).\r\n", Altered, "227 Entering Passive Mode (198,18,0,80,195,80).\r\n", toVIP(nat4(), 50000)},
		{"227 of somebody else", nat4(), "PASV", "227 Entering Passive Mode (203,0,113,1,195,80).\r\n", Foreign, "", nil},
		{"227 without numbers", nat4(), "PASV", "227 Entering Passive Mode\r\n", Unreadable, "", nil},
		{"227 that nobody asked for", nat4(), "NOOP", "227 Entering Passive Mode (198,18,1,11,195,80).\r\n", Nothing, "", nil},
		{"227 in place of 229", nat4(), "EPSV", "227 Entering Passive Mode (198,18,1,11,195,80).\r\n", Nothing, "", nil},
		{"229", nat6(), "EPSV", "229 Entering Extended Passive Mode (|||50000|)\r\n", Expects, "", toVIP(nat6(), 50000)},
		{"229, asked for a family", nat6(), "epsv 2", "229 Extended Passive Mode OK (!!!50000!)\r\n", Expects, "", toVIP(nat6(), 50000)},
		{"229 without port", nat6(), "EPSV", "229 Entering Extended Passive Mode (||||)\r\n", Unreadable, "", nil},
		{"EPSV ALL", nat6(), "EPSV ALL", "229 Entering Extended Passive Mode (|||50000|)\r\n", Nothing, "", nil},
		{"PASV refused", nat4(), "PASV", "500 unknown command\r\n", Nothing, "", nil},
		{"AUTH TLS", nat4(), "AUTH TLS", "234 proceed\r\n", Encrypted, "", nil},
		{"AUTH refused", nat4(), "AUTH TLS", "530 please login\r\n", Nothing, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := FTP{}.Begin(tt.conn)
			dir := FromClient
			if tt.command != "" {
				if v := r.Read(FromClient, []byte(tt.command+"\r\n")); v.Note != Nothing {
					t.Fatalf("the command: %+v", v)
				}
				dir = FromServer
			}
			if v := (tt.replace != ""); v {
				for n := range len(tt.text) - 1 {
					if n > 0 && !r.Holds(dir, []byte(tt.text[:n])) {
						t.Errorf("nothing holds %q back", tt.text[:n])
					}
				}
			}
			v := r.Read(dir, []byte(tt.text))
			if v.Note != tt.note || string(v.Replace) != tt.replace || v.Off != (tt.note == Encrypted) {
				t.Errorf("got %v %q off %v, want %v %q", v.Note, v.Replace, v.Off, tt.note, tt.replace)
			}
			if d := cmp.Diff(tt.expect, v.Expect, compare); d != "" {
				t.Errorf("expects (-want +got):\n%s", d)
			}
		})
	}
}

// TestTFTP: requests, and what is none.
func TestTFTP(t *testing.T) {
	conn := nat4()
	want := []Expectation{{UDP: true, FromServer: true, At: conn.Client, Client: conn.Client}}
	for _, tt := range []struct {
		name, text string
		note       Note
		expect     []Expectation
	}{
		{"read", "\x00\x01file\x00octet\x00", Expects, want},
		{"write with options", "\x00\x02file\x00octet\x00blksize\x001428\x00", Expects, want},
		{"data", "\x00\x03\x00\x01hello", Unreadable, nil},
		{"no mode", "\x00\x01file\x00", Unreadable, nil},
		{"no name", "\x00\x01\x00octet\x00", Unreadable, nil},
		{"short", "\x00", Unreadable, nil},
	} {
		v := TFTP{}.Begin(conn).Read(FromClient, []byte(tt.text))
		if v.Note != tt.note {
			t.Errorf("%s: got %v, want %v", tt.name, v.Note, tt.note)
		}
		if d := cmp.Diff(tt.expect, v.Expect, compare); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// FuzzFTP: whatever a line says, what replaces it is a line, and where a connection is expected it is the client's.
func FuzzFTP(f *testing.F) {
	for _, s := range []string{"PORT 198,18,0,10,195,80\r\n", "EPRT |1|198.18.0.10|50000|\r\n", "227 Entering Passive Mode (198,18,1,11,195,80).\r\n", "229 (|||5|)\r\n", "\xff\xf4\xff\xf2ABOR\r\n", "EPRT |", "\xff"} {
		f.Add(s, true, true)
		f.Add(s, false, false)
	}
	f.Fuzz(func(t *testing.T, text string, server, full bool) {
		conn, dir := nat4(), FromClient
		if full {
			conn = full4()
		}
		for _, ask := range []string{"PASV\r\n", "EPSV\r\n", "AUTH TLS\r\n"} {
			r := FTP{}.Begin(conn)
			if server {
				r.Read(FromClient, []byte(ask))
				dir = FromServer
			}
			r.Holds(dir, []byte(text))
			v := r.Read(dir, []byte(text))
			for _, e := range v.Expect {
				if e.Client.Addr() != conn.Client.Addr() || e.At.Port() == 0 && e.FromServer || e.FromServer && e.At.Addr() != conn.Local.Addr() || !e.FromServer && e.At.Addr() != conn.VIP.Addr() {
					t.Errorf("%q leads to %+v", text, e)
				}
			}
			if dir == FromClient && v.Replace != nil && (v.Replace[len(v.Replace)-1] != '\n' || len(v.Replace) > 80) {
				t.Errorf("%q becomes %q", text, v.Replace)
			}
			if len(v.Replace) > len(text)+64 {
				t.Errorf("%q becomes %q", text, v.Replace)
			}
		}
	})
}

// FuzzTFTP: only requests lead to anything.
func FuzzTFTP(f *testing.F) {
	for _, s := range []string{"\x00\x01file\x00octet\x00", "\x00\x02f\x00netascii\x00blksize\x001428\x00", "\x00\x03\x00\x01data", "\x00\x01\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v := TFTP{}.Begin(nat4()).Read(FromClient, b)
		if (v.Note == Expects) != (len(v.Expect) == 1) || v.Replace != nil || len(v.Expect) == 1 && (b[0] != 0 || b[1] != 1 && b[1] != 2) {
			t.Errorf("% x: %+v", b, v)
		}
	})
}
