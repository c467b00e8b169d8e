package tcppeer

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// A wire joins two hosts in virtual time and harms frames as told.
type wire struct {
	t                     *testing.T
	rng                   *rand.Rand
	loss, duplicate, late float64
	hosts                 [2]*Host
	now                   time.Duration
	flying                []flight
	order                 int
}

type flight struct {
	at    time.Duration
	order int // frames of one time keep their order
	to    int
	frame []byte
}

const delay = 10 * time.Millisecond

// send puts a frame on its way to host to.
func (w *wire) send(to int) func([]byte) {
	return func(b []byte) {
		verify(w.t, b)
		copies := 1
		if w.rng.Float64() < w.loss {
			copies = 0
		} else if w.rng.Float64() < w.duplicate {
			copies = 2
		}
		for range copies {
			at := w.now + delay
			if w.rng.Float64() < w.late {
				at += time.Duration(w.rng.IntN(int(5 * delay)))
			}
			w.order++
			w.flying = append(w.flying, flight{at, w.order, to, slices.Clone(b)})
		}
	}
}

// run lets time pass until nothing is left to happen, at most limit.
func (w *wire) run(limit time.Duration) {
	for w.now < limit {
		next := limit
		for _, h := range w.hosts {
			if at, ok := h.Deadline(); ok {
				next = min(next, max(at, w.now))
			}
		}
		first := -1
		for i, f := range w.flying {
			if f.at <= next && (first < 0 || f.at < w.flying[first].at || f.at == w.flying[first].at && f.order < w.flying[first].order) {
				first = i
			}
		}
		if first >= 0 {
			f := w.flying[first]
			w.flying = slices.Delete(w.flying, first, first+1)
			w.now = max(w.now, f.at)
			w.hosts[f.to].Receive(w.now, f.frame)
			continue
		}
		w.now = next
		for _, h := range w.hosts {
			h.Tick(w.now)
		}
	}
}

// verify decodes a frame with gopacket and computes its checksums again.
func verify(t *testing.T, b []byte) {
	t.Helper()
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("frame % x: %v", b, e.Error())
	}
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		return
	}
	if err := tcp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
		t.Fatal(err)
	}
	var serial []gopacket.SerializableLayer
	for _, l := range p.Layers() {
		serial = append(serial, l.(gopacket.SerializableLayer))
	}
	again := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(again, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}, serial...); err != nil {
		t.Fatal(err)
	}
	// gopacket pads short Ethernet frames.
	if got := again.Bytes()[:len(b)]; !slices.Equal(got, b) {
		t.Fatalf("frame\n% x\ngopacket writes\n% x", b, got)
	}
}

var (
	client4, server4 = netip.MustParseAddr("198.18.0.10"), netip.MustParseAddr("198.18.1.10")
	client6, server6 = netip.MustParseAddr("2001:db8::10"), netip.MustParseAddr("2001:db8:1::10")
	clientMAC        = [6]byte{2, 0, 0, 0, 0, 1}
	serverMAC        = [6]byte{2, 0, 0, 0, 0, 2}
)

// pair makes a client and a server on one wire; each may change its Config first.
func pair(t *testing.T, change func(client, server *Config)) *wire {
	w := &wire{t: t, rng: rand.New(rand.NewPCG(1, 2))}
	c := Config{MAC: clientMAC, NextHop: serverMAC, Addresses: []netip.Prefix{netip.PrefixFrom(client4, 32), netip.PrefixFrom(client6, 128)}, Seed: 1}
	s := Config{MAC: serverMAC, NextHop: clientMAC, Addresses: []netip.Prefix{netip.PrefixFrom(server4, 32), netip.PrefixFrom(server6, 128)}, Seed: 2}
	change(&c, &s)
	c.Send, s.Send = w.send(1), w.send(0)
	w.hosts = [2]*Host{New(c), New(s)}
	w.hosts[1].Listen(80)
	return w
}
