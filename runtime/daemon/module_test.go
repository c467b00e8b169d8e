package daemon_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// control is a control connection of FTP in which lines of both ends are altered, longer and shorter, that loses one
// segment.
type control struct {
	mode     string
	net      int // behind which port it is lost
	toServer bool
	n        int // which one of its direction
	both     bool
}

const controlConfig = base + `
services:
  - {name: ftp, listen: [198.18.0.180:21], mode: MODE, protocol: tcp, module: ftp, default: app}
groups:
  - {name: app, scheduler: rr, local: [198.18.1.100], servers: [{address: 198.18.1.9:21}], check: {type: none}}
`

// says are what the client says, a line after each reply, and what the server answers to it.
var says = [][2]string{
	{"", "220 here\r\n"},
	{"PASV\r\n", "227 Entering Passive Mode (198,18,1,9,195,80).\r\n"},
	{"PORT 198,18,0,10,200,1\r\n", "200 yes\r\n"},
	{"PASV\r\n", "227 Entering Passive Mode (198,18,1,9,195,81).\r\n"},
	{"NOOP\r\n", "200 fine\r\n"},
	{"PORT 198,18,0,99,4,1\r\n", "501 no\r\n"}, // somebody else
	{"PORT 198,18,0,10,20,255\r\n", "200 yes\r\n"},
	{"PASV\r\n", "227 =198,18,1,9,195,82\r\n"},
	{"QUIT\r\n", "221 bye\r\n"},
}

// run is one such connection; frames is how many segments the direction had.
func (x control) run(t *testing.T) (frames int) {
	t.Helper()
	r := newRig(t, small)
	var heard, said string // by the server, by it to the client
	host := func(a string) []netip.Prefix { return []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(a), 32)} }
	step := 1
	r.host(1, tcppeer.Config{Addresses: host("198.18.1.9"), Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Established {
			c.Write([]byte(says[0][1]))
		}
		heard += string(c.Bytes())
		c.Discard(len(c.Bytes()))
		for ; strings.Count(heard, "\n") >= step && step < len(says); step++ {
			c.Write([]byte(says[step][1]))
			if step == len(says)-1 {
				c.CloseWrite()
			}
		}
		if e == tcppeer.PeerClosed {
			c.CloseWrite()
		}
	}}).Listen(21)
	at, closed := 0, false
	client := r.host(0, tcppeer.Config{Addresses: host("198.18.0.10"), TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		said += string(c.Bytes())
		c.Discard(len(c.Bytes()))
		for ; at < len(says)-1 && strings.Count(said, "\n") > at; at++ {
			c.Write([]byte(says[at+1][0]))
		}
		switch e {
		case tcppeer.PeerClosed:
			c.CloseWrite()
		case tcppeer.Closed:
			closed = true
		case tcppeer.Reset, tcppeer.TimedOut:
			t.Errorf("the client's connection ends by event %d", e)
			closed = true
		}
	}})
	r.apply(strings.ReplaceAll(controlConfig, "MODE", x.mode))
	r.run(5 * time.Millisecond)
	r.nets[x.net].drop = func(toServer bool, b []byte) bool {
		if x.net == 0 {
			toServer = !toServer // the network counts from the card's side
		}
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		if _, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP); !ok || toServer != x.toServer {
			return false
		}
		frames++
		return frames-1 == x.n || x.both && frames-1 == x.n+1
	}
	if _, err := client.Dial(r.now, netip.MustParseAddrPort("198.18.0.10:0"), netip.MustParseAddrPort("198.18.0.180:21")); err != nil {
		t.Fatal(err)
	}
	// The card's quarantine is so short here that a FIN that comes again later finds nobody.
	r.until("end of the connection", 60*time.Second, func() bool { return closed || r.card.Load(regs.PassClosedFin) != 0 })
	wantSaid, wantHeard := "", ""
	for _, s := range says {
		wantHeard += s[0]
		wantSaid += s[1]
	}
	wantSaid = strings.ReplaceAll(wantSaid, "198,18,1,9", "198,18,0,180")
	wantHeard = strings.Replace(wantHeard, "PORT 198,18,0,99,4,1", "PORT 0", 1)
	if x.mode == "fullnat" {
		own := regexp.MustCompile(`PORT 198,18,1,100,2[45]\d,\d+`)
		heard = own.ReplaceAllString(heard, "PORT own")
		wantHeard = regexp.MustCompile(`PORT 198,18,0,10,\d+,\d+`).ReplaceAllString(wantHeard, "PORT own")
	}
	if d := cmp.Diff(wantSaid, said); d != "" {
		t.Errorf("the client hears (-want +got):\n%s", d)
	}
	if d := cmp.Diff(wantHeard, heard); d != "" {
		t.Errorf("the server hears (-want +got):\n%s", d)
	}
	r.run(300 * time.Millisecond)
	if n := r.card.Load(regs.PassClosedFin); n != 1 {
		t.Errorf("closed_fin: got %d, want 1", n)
	}
	want := uint32(4) // three replies and a refusal
	if x.mode == "fullnat" {
		want = 5 // and a PORT; the other's ports are as long as the client's
	}
	if n := r.card.Load(regs.PassShifted); n < want {
		t.Errorf("shifted: got %d, want %d or more", n, want)
	}
	return frames
}

// TestAlteredLinesLost loses each segment of both networks once, and each two in a row: both ends hear the same lines all
// the same, altered, and the connection ends by its FINs.
func TestAlteredLinesLost(t *testing.T) {
	for _, mode := range []string{"nat", "fullnat"} {
		if testing.Short() && mode == "fullnat" {
			continue
		}
		for network := range 2 {
			for _, toServer := range []bool{true, false} {
				for n := 0; ; n++ {
					x := control{mode: mode, net: network, toServer: toServer, n: n, both: n%2 == 1}
					frames := 0
					t.Run(fmt.Sprintf("%+v", x), func(t *testing.T) { frames = x.run(t) })
					if frames <= n {
						break
					}
				}
			}
		}
	}
}
