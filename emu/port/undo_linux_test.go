package port_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/tools/netlab"
)

// interfaceState is all that a port changes about an interface.
func interfaceState(t *testing.T, n *netlab.Namespace, name string) string {
	t.Helper()
	var flags net.Flags
	check(t, n.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err == nil {
			flags = i.Flags & net.FlagUp
		}
		return err
	}))
	return fmt.Sprint(flags, " ipv6 off ", readSysctl(t, n, "ipv6/conf/"+name+"/disable_ipv6"),
		", forwarding ", readSysctl(t, n, "ipv4/conf/"+name+"/forwarding"), ", arp_ignore ", readSysctl(t, n, "ipv4/conf/"+name+"/arp_ignore"))
}

// TestSecondCardHarmsNothing opens a second port on an interface that has one: it is refused, and the first goes on.
func TestSecondCardHarmsNothing(t *testing.T) {
	for _, up := range []bool{true, false} {
		t.Run(fmt.Sprintf("was up %t", up), func(t *testing.T) {
			lab := newLab(t)
			peer, card := namespace(t, lab, "peer"), namespace(t, lab, "card")
			check(t, lab.Link(peer, "eth0", card, "eth1"))
			if !up {
				check(t, card.Down("eth1"))
			}
			before := interfaceState(t, card, "eth1")
			far, first := openIn(t, peer, "eth0"), openIn(t, card, "eth1")
			check(t, wait(far, func() bool { return first.Link().Up && far.Link().Up }))
			held := interfaceState(t, card, "eth1")
			for range 2 {
				err := card.Do(func() error { _, err := port.Open("eth1"); return err })
				if !errors.Is(err, port.ErrBusy) {
					t.Errorf("got %v, want ErrBusy", err)
				}
				if got := interfaceState(t, card, "eth1"); got != held {
					t.Errorf("got %s, want %s as before the refusal", got, held)
				}
			}
			for _, way := range []struct{ from, to port.Port }{{far, first}, {first, far}} {
				f := wrap(append(make([]byte, 12), append([]byte{0x88, 0xb5}, make([]byte, 46)...)...), frame.Offload{})
				if n := way.from.Transmit([]*frame.Frame{f}); n != 1 {
					t.Fatalf("took %d frames, want 1", n)
				}
				sameBytes(t, take(t, way.to, 1)[0].Bytes(), f.Bytes())
			}
			check(t, first.Close())
			if got := interfaceState(t, card, "eth1"); got != before {
				t.Errorf("closed: got %s, want %s", got, before)
			}
		})
	}
}

// TestOpenWithoutAdmin has the kernel refuse what opening changes, at the first thing it changes and at the last.
func TestOpenWithoutAdmin(t *testing.T) {
	for _, tt := range []struct {
		name  string
		quiet bool // the variables are as a card wants them, so that the first change is to bring the interface up
		up    bool
	}{
		{name: "variables, up", up: true},
		{name: "variables, down"},
		{name: "bring up", quiet: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab := newLab(t)
			peer, card := namespace(t, lab, "peer"), namespace(t, lab, "card")
			check(t, lab.Link(peer, "eth0", card, "eth1"), card.Sysctl("net.ipv4.ip_forward", "1"))
			if tt.quiet {
				check(t, card.Sysctl("net.ipv6.conf.eth1.disable_ipv6", "1"), card.Sysctl("net.ipv4.conf.eth1.forwarding", "0"),
					card.Sysctl("net.ipv4.conf.eth1.arp_ignore", "8"))
			}
			if !tt.up {
				check(t, card.Down("eth1"))
			}
			before := interfaceState(t, card, "eth1")
			err := card.Do(func() error {
				return withoutAdmin(func() error { _, err := port.Open("eth1"); return err })
			})
			if !errors.Is(err, unix.EPERM) {
				t.Errorf("got %v, want EPERM", err)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("undoing what was not done failed too: %v", err)
			}
			if got := interfaceState(t, card, "eth1"); got != before {
				t.Errorf("got %s, want %s", got, before)
			}
		})
	}
}

// TestOpenUndoes has each step of opening fail in turn: what the steps before it did is undone, and nothing else.
func TestOpenUndoes(t *testing.T) {
	failure := errors.New("made to fail")
	for _, up := range []bool{true, false} {
		lab := newLab(t)
		peer, card := namespace(t, lab, "peer"), namespace(t, lab, "card")
		check(t, lab.Link(peer, "eth0", card, "eth1"), card.Sysctl("net.ipv4.ip_forward", "1"), card.Sysctl("net.ipv4.conf.eth1.arp_ignore", "8"))
		if !up {
			check(t, card.Down("eth1"))
		}
		before := interfaceState(t, card, "eth1")
		for _, step := range port.Steps() {
			t.Run(fmt.Sprintf("%s, was up %t", step, up), func(t *testing.T) {
				err := card.Do(func() error { return port.OpenFailing("eth1", step, failure) })
				if err == nil || err.Error() != failure.Error() {
					t.Errorf("got %v, want that it was made to fail, alone", err)
				}
				if got := interfaceState(t, card, "eth1"); got != before {
					t.Errorf("got %s, want %s", got, before)
				}
				// Nothing is held either.
				check(t, card.Do(func() error {
					p, err := port.Open("eth1")
					if err != nil {
						return err
					}
					return p.Close()
				}))
				if got := interfaceState(t, card, "eth1"); got != before {
					t.Errorf("opened and closed: got %s, want %s", got, before)
				}
			})
		}
	}
}

// TestInterfaceGone deletes the interface under a port and makes another of the same name: that is not the port's.
func TestInterfaceGone(t *testing.T) {
	for _, tt := range []struct {
		name string
		asks bool // the port is asked between
	}{{"asked between", true}, {"asked afterwards only", false}} {
		t.Run(tt.name, func(t *testing.T) {
			lab := newLab(t)
			peer, card := namespace(t, lab, "peer"), namespace(t, lab, "card")
			check(t, peer.Sysctl("net.ipv6.conf.default.disable_ipv6", "1")) // it has nothing to say of its own
			check(t, lab.Link(peer, "eth0", card, "eth1"), card.Down("eth1"))
			p := openIn(t, card, "eth1")
			check(t, wait(p, func() bool { return p.Link().Up }))
			gone := func(when string) {
				t.Helper()
				for range 2 {
					if l := p.Link(); l.Up || l.Err != port.ErrGone {
						t.Errorf("%s: link %+v, want it down with ErrGone", when, l)
					}
				}
				if got, want := p.MTU(), 1500; got != want {
					t.Errorf("%s: MTU %d, want the last one, %d", when, got, want)
				}
				f := buffers(1, p.BufferBytes())
				if n := p.Receive(f); n != 0 {
					t.Errorf("%s: received %d frames", when, n)
				}
				if n := p.Transmit([]*frame.Frame{wrap(make([]byte, 60), frame.Offload{})}); n != 0 {
					t.Errorf("%s: took %d frames", when, n)
				}
			}
			deleteLink(t, card, "eth1")
			if tt.asks {
				gone("deleted")
			}
			check(t, lab.Link(peer, "eth0", card, "eth1"), card.MTU("eth1", 1400))
			gone("made again")
			// Closing leaves the new one alone; a new port takes it.
			before := interfaceState(t, card, "eth1")
			check(t, p.Close())
			if got := interfaceState(t, card, "eth1"); got != before {
				t.Errorf("closed: got %s, want %s", got, before)
			}
			again, far := openIn(t, card, "eth1"), openIn(t, peer, "eth0")
			check(t, wait(far, func() bool { return again.Link().Up && far.Link().Up }))
			f := wrap(append(make([]byte, 12), append([]byte{0x88, 0xb5}, make([]byte, 46)...)...), frame.Offload{})
			far.Transmit([]*frame.Frame{f})
			sameBytes(t, take(t, again, 1)[0].Bytes(), f.Bytes())
		})
	}
}

// TestInterfaceMoved moves the interface away and back. It has its index again, and the socket nothing of it.
func TestInterfaceMoved(t *testing.T) {
	lab := newLab(t)
	peer, card, away := namespace(t, lab, "peer"), namespace(t, lab, "card"), namespace(t, lab, "away")
	check(t, lab.Link(peer, "eth0", card, "eth1"))
	index := func() (n int) {
		check(t, card.Do(func() error {
			i, err := net.InterfaceByName("eth1")
			if err == nil {
				n = i.Index
			}
			return err
		}))
		return n
	}
	was := index()
	p := openIn(t, card, "eth1")
	check(t, wait(p, func() bool { return p.Link().Up }))
	moveLink(t, card, away, "eth1")
	moveLink(t, away, card, "eth1")
	check(t, card.Up("eth1"))
	if now := index(); now != was {
		t.Skipf("the kernel gave it another index, %d after %d", now, was)
	}
	if l := p.Link(); l.Up || l.Err != port.ErrGone {
		t.Errorf("link %+v, want it down with ErrGone", l)
	}
}

// TestTapGone does the same to a TAP.
func TestTapGone(t *testing.T) {
	lab := newLab(t)
	host := namespace(t, lab, "host")
	needTun(t)
	p := openIn(t, host, "tap:wire0")
	check(t, host.Up("wire0"))
	if l := p.Link(); !l.Up || l.Err != nil {
		t.Fatalf("link %+v, want up", l)
	}
	deleteLink(t, host, "wire0")
	again := openIn(t, host, "tap:wire0")
	check(t, host.Up("wire0"))
	if l := p.Link(); l.Up || l.Err != port.ErrGone {
		t.Errorf("link %+v, want it down with ErrGone", l)
	}
	if l := again.Link(); !l.Up || l.Err != nil {
		t.Errorf("the new one's link %+v, want up", l)
	}
}
