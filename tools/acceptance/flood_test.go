package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
)

// spoofedSYNs are SYNs for the VIP from addresses that nobody has.
func spoofedSYNs(t *testing.T, n int, from, to net.HardwareAddr) [][]byte {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	frames := make([][]byte, n)
	for i := range frames {
		eth := &layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: layers.EthernetTypeIPv4}
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, Flags: layers.IPv4DontFragment,
			SrcIP: net.IPv4(198, 19, byte(r.Uint32()), byte(1+r.UintN(254))), DstIP: net.IPv4(198, 18, 0, 80)}
		tcp := &layers.TCP{SrcPort: layers.TCPPort(1024 + r.UintN(60_000)), DstPort: 80, Seq: r.Uint32(), SYN: true, Window: 64240,
			Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}}}
		must(t, tcp.SetNetworkLayerForChecksum(ip))
		b := gopacket.NewSerializeBuffer()
		must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp))
		frames[i] = slices.Clone(b.Bytes())
	}
	return frames
}

// flood sends frames over and over, as fast as one thread can, until ctx ends. It returns how many.
func flood(ctx context.Context, n *netlab.Namespace, ifname string, frames [][]byte) (sent int, err error) {
	err = n.Do(func() error {
		i, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index}); err != nil {
			return os.NewSyscallError("bind", err)
		}
		for ctx.Err() == nil {
			for range 256 {
				if _, err := unix.Write(fd, frames[sent%len(frames)]); err == nil {
					sent++
				} else if err != unix.ENOBUFS && err != unix.EAGAIN && err != unix.EINTR {
					return os.NewSyscallError("write", err)
				}
			}
		}
		return nil
	})
	return sent, err
}

// alone says that the test has the machine's processors to itself: `make flood`.
var alone = os.Getenv("SPLICE_FLOOD") != ""

// TestFlood floods a VIP with spoofed SYNs while clients connect. All of them have their answers; the SYN defence has
// switched itself on, and off again after it. With two processors to itself each answer is there within three seconds.
func TestFlood(t *testing.T) {
	seconds := 4
	if alone {
		seconds = 20
	}
	const perSecond, deadline = 50, 3 * time.Second
	p := between(t)
	p.first = true // a card has its processor to itself; what else runs here is not to be in its way
	text := configuration
	if !alone { // what else runs here may leave the flood, and the card, a small part of a processor
		text += "defence: {rate_on: 1000, rate_off: 500}\n"
	}
	p.begin(text)
	if v, ok := p.stat("defence.active"); !ok || v != 0 {
		t.Skip("this build's SYN defence does not show itself")
	}
	var xs exchanges
	ln, err := listen(p.servers, plain, "198.18.1.11:80")
	must(t, err)
	defer ln.Close()
	go xs.serve(t, ln)

	var from, to net.HardwareAddr
	for _, x := range []struct {
		n    *netlab.Namespace
		name string
		mac  *net.HardwareAddr
	}{{p.client, "eth0", &from}, {p.card, "eth1", &to}} {
		must(t, x.n.Do(func() error {
			i, err := net.InterfaceByName(x.name)
			if err == nil {
				*x.mac = i.HardwareAddr
			}
			return err
		}))
	}
	frames := spoofedSYNs(t, 1<<15, from, to)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	var work sync.WaitGroup
	var sent int
	work.Go(func() {
		var err error
		if sent, err = flood(ctx, p.client, "eth0", frames); err != nil {
			t.Errorf("flood: %v", err)
		}
	})
	var mu sync.Mutex
	var took []time.Duration
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for n := range seconds * perSecond {
		<-tick.C
		work.Go(func() {
			begin := time.Now()
			_, err := xs.run(p.client, plain, "198.18.0.80:80", script{name: "short", down: little, clientFINWaits: afterFIN}, byte(n))
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begin))
			if err != nil {
				t.Errorf("connection %d: %v", n, err)
			}
		})
	}
	work.Wait()
	slices.Sort(took)
	last := took[len(took)-1]
	t.Logf("%d SYNs, %.0f a second; %d connections, median %v, the slowest %v; %s", sent, float64(sent)/float64(seconds),
		len(took), took[len(took)/2].Round(time.Millisecond), last.Round(time.Millisecond), p.floodCounts())
	if alone && last > deadline {
		t.Errorf("a connection took %v, want at most %v", last, deadline)
	}
	if got := p.number("defence.switched_on"); got == 0 {
		t.Error("the SYN defence has not switched on")
	}
	p.await("the SYN defence is off again", 30*time.Second, func() bool {
		return p.number("defence.active") == 0 && p.number("defence.switched_off") == p.number("defence.switched_on")
	})
	if v, _ := p.stat("amu.no_page"); v != 0 {
		t.Errorf("amu.no_page: got %v, want 0", v)
	}
	p.atRest()
}

// floodCounts is what the card says about a flood.
func (p *product) floodCounts() string {
	s := ""
	for _, name := range []string{"ports.client.rx_overrun", "defence.cookie_sent", "defence.cookie_valid", "defence.cookie_bad", "defence.switched_on", "pages.free", "pages.total", "amu.no_page"} {
		v, ok := p.stat(name)
		if !ok {
			continue
		}
		s += fmt.Sprintf(" %s %.0f", name, v)
	}
	return s
}
