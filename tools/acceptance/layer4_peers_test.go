package acceptance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patienceL4 bounds one exchange with a farm.
const patienceL4 = 5 * time.Second

// A reply is what a server of a farm answers: its own name and who it saw.
type reply struct {
	from   netip.AddrPort // the client, as it knows itself
	server string
	seen   netip.AddrPort

	connected time.Duration // how long that took
	syns      int           // SYNs that the client sent again
	again     int           // segments that it sent again, SYNs among them
}

// answer has a server answer at an address until the test ends: whatever comes, with its own name and whom it came from.
func (f *farm) answer(b *backend, protocol string, at netip.AddrPort) {
	f.t.Helper()
	if protocol == "udp" {
		var c *net.UDPConn
		must(f.t, b.Do(func() (err error) {
			c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		}))
		_ = c.SetReadBuffer(4 << 20) // bytes
		done := make(chan struct{})
		f.t.Cleanup(func() { c.Close(); <-done })
		go func() {
			defer close(done)
			answerDatagrams(c, b.Name())
		}()
		return
	}
	ln, err := b.Listen("tcp", at.String())
	must(f.t, err)
	var serving sync.WaitGroup
	f.t.Cleanup(func() { ln.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { answerConnection(c.(*net.TCPConn), b) })
		}
	})
}

func answerDatagrams(c *net.UDPConn, name string) {
	b := make([]byte, 65536)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP message for an earlier answer
			continue
		}
		_, _ = c.WriteToUDPAddrPort(fmt.Appendf(b[:n], " %s %s", name, from), from)
	}
}

// answerConnection answers each line that comes. A line that ends with bye ends the connection from here.
func answerConnection(c *net.TCPConn, s *backend) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 1<<16)
	at := 0
	for {
		n, err := c.Read(b[at:])
		if errors.Is(err, syscall.ECONNRESET) {
			s.resets.Add(1)
		}
		if err != nil {
			return
		}
		at += n
		if b[at-1] != '\n' {
			if at == len(b) {
				return
			}
			continue
		}
		line := strings.TrimSuffix(string(b[:at]), "\n")
		if _, err := fmt.Fprintf(c, "%.20s %d %s %s\n", line, len(line), s.Name(), c.RemoteAddr()); err != nil || strings.HasSuffix(line, "bye") {
			return
		}
		at = 0
	}
}

// askers is how many clients ask at the same time.
const askers = 8

// ask makes n connections, or sends n datagrams from ports of their own, and returns what servers answered.
func (f *farm) ask(t *testing.T, protocol string, to netip.AddrPort, n int) []reply {
	t.Helper()
	answers := make([]reply, n)
	var next, failed atomic.Int64
	var asking sync.WaitGroup
	for range askers {
		asking.Go(func() {
			err := f.client.Do(func() error {
				for {
					i := int(next.Add(1)) - 1
					if i >= n || failed.Load() > 3 {
						return nil
					}
					r, err := askOnce(protocol, f.from(to.Addr(), i), to, "bye\n")
					if err != nil {
						failed.Add(1)
						t.Errorf("connection %d from %s to %s: %v", i, r.from, to, err)
						continue
					}
					answers[i] = r
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if failed.Load() > 0 {
		t.FailNow()
	}
	again := 0
	for _, a := range answers {
		again += a.again
	}
	if again > n/1000 { // a few where the machine stood still for 200 ms
		t.Errorf("%d segments of %d connections were sent again", again, n)
	}
	return answers
}

// firstPort is the first of the ports that clients use, one after the other: a datagram from a port that was used just now would
// belong to that flow's page, and what hashes make of ports is the same in every run.
const firstPort = 2000

// from is the client's end of a flow.
func (f *farm) from(vip netip.Addr, i int) netip.AddrPort {
	for _, fam := range families {
		if fam.vip.Is4() == vip.Is4() {
			return netip.AddrPortFrom(fam.client, uint16(firstPort+i))
		}
	}
	panic("no family of " + vip.String())
}

// askOnce makes one connection, inside the client's namespace, and ends it after the answer.
func askOnce(protocol string, from, to netip.AddrPort, line string) (r reply, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patienceL4)
	defer cancel()
	var d net.Dialer // of one literal address: no other goroutine takes part
	d.SetMultipathTCP(false)
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(from)
		if protocol == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(from)
		}
	}
	began := time.Now()
	c, err := d.DialContext(ctx, protocol, to.String())
	for protocol == "udp" && errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil {
		// A program that another test is starting has the socket before this one, closed here, until its exec.
		time.Sleep(time.Millisecond)
		c, err = d.DialContext(ctx, protocol, to.String())
	}
	if err != nil {
		return r, err
	}
	r.connected = time.Since(began)
	defer c.Close()
	r.syns = retransmissions(c)
	if err := c.SetDeadline(time.Now().Add(patienceL4)); err != nil {
		return r, err
	}
	r.from = netip.MustParseAddrPort(c.LocalAddr().String())
	if _, err := io.WriteString(c, line); err != nil {
		return r, err
	}
	var b []byte
	if protocol == "udp" {
		b = make([]byte, 65536)
		n, err := c.Read(b)
		if err != nil {
			return r, err
		}
		b = b[:n]
	} else {
		if b, err = io.ReadAll(c); err != nil {
			return r, fmt.Errorf("after %q: %w", b, err)
		}
		r.again = retransmissions(c)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 3 {
		return r, fmt.Errorf("answer %q", b)
	}
	r.server = fields[len(fields)-2]
	r.seen, err = netip.ParseAddrPort(fields[len(fields)-1])
	return r, err
}

// retransmissions is how many segments of a TCP connection went out again so far.
func retransmissions(c net.Conn) int {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return 0
	}
	n, err := unix.GetsockoptTCPInfo(fd(tcp), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return int(n.Total_retrans)
}

// once is askOnce from the client's namespace.
func (f *farm) once(t *testing.T, protocol string, from, to netip.AddrPort, line string) (r reply) {
	t.Helper()
	err := f.client.Do(func() (err error) {
		r, err = askOnce(protocol, from, to, line)
		return err
	})
	if err != nil {
		t.Fatalf("from %s to %s by %s: %v", from, to, protocol, err)
	}
	return r
}

// A talk4 is a connection that stays open.
type talk4 struct {
	*net.TCPConn
	r *bufio.Reader
}

// talk opens a connection.
func (f *farm) talk(t *testing.T, from, to netip.AddrPort) *talk4 {
	t.Helper()
	var c *net.TCPConn
	must(t, f.client.Do(func() (err error) {
		c, err = net.DialTCP("tcp", net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to))
		return err
	}))
	t.Cleanup(func() { c.Close() })
	return &talk4{c, bufio.NewReader(c)}
}

// server asks who is at the other end.
func (c *talk4) server(t *testing.T) string {
	t.Helper()
	must(t, c.SetDeadline(time.Now().Add(patienceL4)))
	_, err := io.WriteString(c, "hello\n")
	must(t, err)
	line, err := c.r.ReadString('\n')
	must(t, err)
	fields := strings.Fields(line)
	return fields[len(fields)-2]
}

// fd is the connection's, which stays open.
func fd(c *net.TCPConn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	_ = raw.Control(func(fd uintptr) { n = int(fd) })
	return n
}

// shares checks that servers have answered as their weights say, to one connection each.
func shares(t *testing.T, answers []reply, servers []*backend, weights []int) {
	t.Helper()
	got := map[string]int{}
	for _, a := range answers {
		got[a.server]++
	}
	sum := 0
	for _, w := range weights {
		sum += w
	}
	for i, b := range servers {
		if d := got[b.Name()]*sum - len(answers)*weights[i]; d > sum || d < -sum {
			t.Errorf("%s answered %d of %d connections, want %d of %d parts to one connection", b.Name(), got[b.Name()], len(answers), weights[i], sum)
		}
	}
}
