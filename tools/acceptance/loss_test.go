package acceptance

import (
	encoding "encoding/binary" // binary is splicectl
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/emu/port"
)

// forward makes a plain router of the card's namespace, with the card's addresses, so that clients reach the servers
// themselves: the same field without a card.
func (f *field) forward() {
	f.t.Helper()
	n := f.card
	must(f.t, n.Sysctl("net.ipv4.ip_forward", "1"))
	must(f.t, n.Addr("eth1", cardWest4+"/24"))
	must(f.t, n.Addr("eth2", cardEast4+"/24"))
	must(f.t, n.Route("198.18.64.0/18", west4))
	must(f.t, n.Route("198.18.128.0/17", east4))
}

// downloads is what a field's downloads took.
type downloads struct {
	mu          sync.Mutex
	times       []time.Duration // by download
	retransmits uint64          // bytes, by the server's kernel
	dropped     uint64          // bytes of payload toward the client, by the wire
	timeouts    int64           // of the server's retransmission timer
}

// congestion chooses the congestion control of a listener's connections. BBR would take the round trip of the handshake,
// which ends at the card, for the path's, and believe it for ten seconds.
func congestion(ln net.Listener, name string) error {
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) })
	return errors.Join(err, os.NewSyscallError("setsockopt TCP_CONGESTION", inner))
}

// lose returns what chooses a wire's losses, one segment in a hundred. What becomes of a segment depends on the connection's
// number, on where in the stream it lies and on how often it came: two wires that carry the same downloads lose the same.
func lose(server uint16) func(n uint64, frame []byte) bool {
	type flow struct {
		number   int
		isn      uint32 // of the server
		fromHere uint32 // segments of the client
		came     map[uint32]uint32
	}
	flows := map[uint16]*flow{}
	return func(_ uint64, b []byte) bool {
		const ip, tcp = 14, 34
		if len(b) < tcp+20 || encoding.BigEndian.Uint16(b[12:]) != 0x0800 || b[ip] != 0x45 || b[ip+9] != 6 {
			return false
		}
		from, to, seq, flags := encoding.BigEndian.Uint16(b[tcp:]), encoding.BigEndian.Uint16(b[tcp+2:]), encoding.BigEndian.Uint32(b[tcp+4:]), b[tcp+13]
		const syn, ack = 2, 16
		client := min(from, to)
		if client == server {
			client = max(from, to)
		}
		f := flows[client]
		if f == nil {
			f = &flow{number: len(flows), came: map[uint32]uint32{}}
			flows[client] = f
		}
		var roll *rand.Rand
		if from == server {
			if flags&(syn|ack) == syn|ack {
				f.isn = seq
			}
			f.came[seq-f.isn]++
			roll = rand.New(rand.NewPCG(uint64(f.number)<<1|1, uint64(seq-f.isn)<<32|uint64(f.came[seq-f.isn])))
		} else {
			f.fromHere++
			roll = rand.New(rand.NewPCG(uint64(f.number)<<1, uint64(f.fromHere)))
		}
		return roll.UintN(100) == 0
	}
}

// middle sorts and returns the median.
func middle[T time.Duration | float64](xs []T) T {
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// TestLossTime downloads over a wire that loses one frame in a hundred, with the card and with a router in its place, both
// at the same time. The card must not make losses dearer. Where a download loses its segments decides more about its time
// than the card does: a median beyond the bound is taken of more pairs before it counts.
func TestLossTime(t *testing.T) {
	if !long {
		t.Skip("takes a minute; SPLICE_LONG=1 runs it")
	}
	const pairs, rounds, atOnce, size = 30, 4, 3, 5_000_000
	const mostTime, mostBytes = 1.15, 1.2
	spliced, bare := newField(t, 1, 1), newField(t, 1, 1)
	spliced.begin(fieldConfig(1, []int{plainPort}, "", func(_, family int) string { return ", profile: " + profileOf(settings-1, family) }))
	bare.forward()
	var xs exchanges
	fields := [2]*field{spliced, bare}
	addresses := [2]string{vip(0, 4, plainPort), site(0).v4 + fmt.Sprintf(":%d", plainPort)}
	var results [2]downloads
	for i, f := range fields {
		ln, err := listen(f.servers[0], plain, fmt.Sprintf(":%d", plainPort))
		must(t, err)
		defer ln.Close()
		must(t, congestion(ln, "cubic"))
		go xs.serve(t, ln)
		if _, err := xs.run(f.clients[0], plain, addresses[i], scripts[0], 0); err != nil { // neighbours are known from here on
			t.Fatal(err)
		}
		f.impair(port.Impairment{Drop: lose(plainPort), Delay: 5 * time.Millisecond}, port.Impairment{})
		results[i].timeouts = -f.counter(f.servers[0], "TcpExt.TCPTimeouts")
	}

	var ratio float64
	for round := 0; round == 0 || ratio > mostTime && round < rounds; round++ {
		room := make(chan struct{}, atOnce)
		var running sync.WaitGroup
		for n := round * pairs; n < (round+1)*pairs; n++ {
			for i := range results {
				results[i].times = append(results[i].times, 0)
			}
			room <- struct{}{}
			running.Go(func() {
				defer func() { <-room }()
				var pair sync.WaitGroup
				for i, f := range fields {
					pair.Go(func() {
						begin := time.Now()
						x, err := xs.run(f.clients[0], plain, addresses[i], script{name: "download", down: size, clientFINWaits: afterFIN}, byte(n))
						took, r := time.Since(begin), &results[i]
						if err != nil || x.info[1] == nil {
							t.Errorf("download %d, %v: %v", n, [2]string{"spliced", "bare"}[i], err)
							return
						}
						r.mu.Lock()
						defer r.mu.Unlock()
						r.times[n] = took
						r.retransmits += x.info[1].Bytes_retrans
					})
				}
				pair.Wait()
			})
		}
		running.Wait()
		if t.Failed() {
			return
		}
		ratios := make([]float64, len(results[0].times))
		for n := range ratios {
			ratios[n] = float64(results[0].times[n]) / float64(results[1].times[n])
		}
		ratio = middle(ratios)
		t.Logf("%d pairs: a download takes %.3f times as long with the card, %.3f to %.3f", len(ratios), ratio, ratios[0], ratios[len(ratios)-1])
	}
	for i, f := range fields {
		r := &results[i]
		r.dropped = f.links[0].Stats()[1].LostPayload
		r.timeouts += f.counter(f.servers[0], "TcpExt.TCPTimeouts")
		t.Logf("%s: %d downloads of %d bytes, median %v, %v to %v; the wire dropped %d bytes, the server sent %d again, %.2f times that; %d time-outs",
			[2]string{"with the card", "without"}[i], len(r.times), size, middle(r.times), r.times[0], r.times[len(r.times)-1], r.dropped, r.retransmits, float64(r.retransmits)/float64(r.dropped), r.timeouts)
	}
	if ratio > mostTime {
		t.Errorf("the median is %.3f, want at most %v", ratio, mostTime)
	}
	if got := float64(results[0].retransmits) / float64(results[0].dropped); got > mostBytes {
		t.Errorf("with the card the server sent %.2f times the bytes again that the wire dropped, want at most %v", got, mostBytes)
	}
	if more := results[0].timeouts - results[1].timeouts; more > int64(len(results[0].times)) {
		t.Errorf("with the card %d more time-outs, want at most one per download", more)
	}
}
