package acceptance

import (
	"errors"
	"fmt"
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
	times       []time.Duration
	retransmits uint64 // bytes, by the server's kernel
	dropped     uint64 // bytes of payload toward the client, by the wire
	timeouts    int64  // of the server's retransmission timer
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

// TestLossTime downloads over a wire that loses one frame in a hundred, with the card and with a router in its place, both
// at the same time. The card must not make losses dearer.
func TestLossTime(t *testing.T) {
	if !long {
		t.Skip("takes a minute; SPLICE_LONG=1 runs it")
	}
	const pairs, atOnce, size = 30, 3, 5_000_000
	const mostTime, mostBytes = 1.15, 1.2
	wire := port.Impairment{Loss: 0.01, Delay: 5 * time.Millisecond}
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
		f.impair(wire, port.Impairment{})
		results[i].timeouts = -f.counter(f.servers[0], "TcpExt.TCPTimeouts")
	}

	room := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for n := range pairs {
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
					r.times = append(r.times, took)
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
	var median [2]time.Duration
	for i, f := range fields {
		r := &results[i]
		slices.Sort(r.times)
		median[i] = (r.times[(pairs-1)/2] + r.times[pairs/2]) / 2
		r.dropped = f.links[0].Stats()[1].LostPayload
		r.timeouts += f.counter(f.servers[0], "TcpExt.TCPTimeouts")
		t.Logf("%s: %d downloads of %d bytes, median %v, %v to %v; the wire dropped %d bytes, the server sent %d again, %.2f times that; %d time-outs",
			[2]string{"with the card", "without"}[i], pairs, size, median[i], r.times[0], r.times[pairs-1], r.dropped, r.retransmits, float64(r.retransmits)/float64(r.dropped), r.timeouts)
	}
	if ratio := float64(median[0]) / float64(median[1]); ratio > mostTime {
		t.Errorf("the median download takes %.3f times as long with the card, want at most %v", ratio, mostTime)
	} else {
		t.Logf("ratio of the medians %.3f", ratio)
	}
	if got := float64(results[0].retransmits) / float64(results[0].dropped); got > mostBytes {
		t.Errorf("with the card the server sent %.2f times the bytes again that the wire dropped, want at most %v", got, mostBytes)
	}
	if more := results[0].timeouts - results[1].timeouts; more > pairs {
		t.Errorf("with the card %d more time-outs, want at most one per download", more)
	}
}
