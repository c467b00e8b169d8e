package oracle_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// long says whether to take all the time there is.
func long() bool { return os.Getenv("SPLICE_LONG") != "" }

// peers are the options that an end offers.
type peers struct {
	scale            uint8
	sack, timestamps bool
}

func (p peers) String() string {
	return fmt.Sprintf("wscale=%d,sack=%v,timestamps=%v", p.scale, p.sack, p.timestamps)
}

func (p peers) set(c *tcppeer.Config) {
	c.WindowScale, c.SACK, c.Timestamps = p.scale, p.sack, p.timestamps
	c.RTO, c.Retries, c.TimeWait = 200*time.Millisecond, 15, 5*time.Second
	if p.scale != 0 {
		c.WindowBytes = 256 << 10
	}
}

// promise is what a service may promise that has servers with these options.
func (p peers) promise() regs.ServiceEntry {
	s := regs.ServiceEntry{PromiseMssIpv4: 1460, PromiseMssIpv6: 1440}
	if p.scale != 0 {
		s.PromiseWscale, s.PromiseWscaleOn = uint32(p.scale), 1
	}
	if p.sack {
		s.PromiseSack = 1
	}
	if p.timestamps {
		s.PromiseTimestamps = 1
	}
	return s
}

// wires are what the networks do to frames, both directions of both wires.
var wires = []struct {
	name string
	how  port.Impairment
}{
	{"clean", port.Impairment{}},
	{"loss", port.Impairment{Loss: 0.02, Delay: time.Millisecond}},
	{"reordering and duplication", port.Impairment{Reorder: 0.05, Duplicate: 0.05, Delay: time.Millisecond}},
	{"delay", port.Impairment{Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond}},
	{"corruption", port.Impairment{Corrupt: 0.02, Delay: time.Millisecond}},
}

// carry takes one transfer over a network.
func carry(t *testing.T, cfg config, x *transfer) *network {
	t.Helper()
	cfg.client.Handle, cfg.server.Handle = x.handle(0), x.handle(1)
	n := newNetwork(t, cfg)
	x.n = n
	if _, err := n.client.Host.Dial(n.now, netip.AddrPortFrom(clientAddress, 40_000), vip); err != nil {
		t.Fatal(err)
	}
	n.until("transfer", 20*time.Minute, x.done)
	// What is still on its way arrives, pages come back.
	n.until("rest", time.Minute, func() bool { return n.load(regs.AmuLive)+n.load(regs.AmuQuarantined) == 0 })
	x.check(t)
	return n
}

// TestTransfers carries downloads, uploads, both at once and half-closed connections over bad wires, with every
// combination of options: what arrives is what was sent, nobody is reset, and the oracle has nothing to say.
func TestTransfers(t *testing.T) {
	const large, little = 300_000, 1000
	var options []peers
	for i := range 8 {
		options = append(options, peers{scale: uint8(i & 1 * 7), sack: i&2 != 0, timestamps: i&4 != 0})
	}
	for wi, w := range wires {
		for si, shape := range []struct {
			name     string
			up, down int64
			set      func(x *transfer)
		}{
			{"download", little, large, func(*transfer) {}},
			{"upload", large, little, func(*transfer) {}},
			{"both", large, large, func(*transfer) {}},
			{"client closes first", little, large, func(x *transfer) { x.clientCloses = true }},
			{"server closes first", large, little, func(x *transfer) { x.serverCloses = true }},
		} {
			for ci, client := range options {
				for vi, server := range options {
					// One in 16, so that each wire and shape meets each client and each server; in short mode fewer.
					if k := 3*wi + 5*si + ci + 2*vi; !long() && (k%16 != 0 || testing.Short() && k%64 != 0) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%v/%v", w.name, shape.name, client, server), func(t *testing.T) {
						x := newTransfer(shape.up, shape.down)
						shape.set(x)
						cfg := config{promise: server.promise(), seed: uint64(ci*64 + vi)}
						client.set(&cfg.client)
						server.set(&cfg.server)
						cfg.wires = [2]port.Impairment{w.how, w.how}
						n := carry(t, cfg, x)
						s := n.sound()
						if s.Spliced != 1 || s.Resets != 0 {
							t.Errorf("%+v", s)
						}
						if up, down := uint64(x.up.want), uint64(x.down.want); s.BytesUp != up || s.BytesDown != down {
							t.Errorf("%d bytes up and %d down, want %d and %d", s.BytesUp, s.BytesDown, up, down)
						}
					})
				}
			}
		}
	}
}
