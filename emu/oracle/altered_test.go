package oracle_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/emu/oracle"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// alteration is what a policy makes of heads: bytes before them, and a field behind the first line.
type alteration struct {
	before string
	field  string
}

// apply returns the altered head and the length of the client's; zero where the head is not whole.
func (a alteration) apply(b []byte) ([]byte, int) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, 0
	}
	line := bytes.Index(b, []byte("\r\n")) + 2
	return []byte(a.before + string(b[:line]) + a.field + string(b[line:end+4])), end + 4
}

// alterer is a host that does nothing but alter requests, by the driver.
type alterer struct {
	t       testing.TB
	n       *network
	card    *driver.Card
	policy  alteration
	streams map[driver.Handle][]byte // what servers are owed
	gather  map[driver.Handle][]byte
	met     int // times that bytes came between take and connect
	wrong   int // bytes of a wrong rest, so that the oracle has something to find
}

// alters starts the host on a network's card, whose service has no default: every request is asked about.
func (n *network) alters(cfg config, policy alteration) *alterer {
	n.Helper()
	a := &alterer{t: n, n: n, policy: policy, streams: map[driver.Handle][]byte{}, gather: map[driver.Handle][]byte{}}
	dev := vfiousertest.Join(n, n.card)
	var err error
	if a.card, err = driver.Open(context.Background(), dev, driver.Config{Pump: func() { n.card.Step(n.now) }}); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		if err := a.card.Shutdown(context.Background()); err != nil {
			n.Error(err)
		}
		dev.Close()
	})
	n.serve(cfg.promise)
	m := &regs.Memories[regs.MemService]
	var p [4]byte
	if err := n.card.ReadRegion(device.Bar2, m.At(0, 0), p[:]); err != nil {
		n.Fatal(err)
	}
	n.card.WriteRegion(device.Bar2, m.At(0, 0), binary.LittleEndian.AppendUint32(nil, binary.LittleEndian.Uint32(p[:])&^regs.ServiceControlHasDefaultMask))
	return a
}

// step answers what the card asks.
func (a *alterer) step() {
	var es [64]driver.Exception
	for _, e := range es[:a.card.Exceptions(es[:])] {
		var err error
		switch h := e.Handle(); e.ReasonReason {
		case regs.ExceptionReasonReasonNoRule:
			err = a.take(h, true)
		case regs.ExceptionReasonReasonHeadTooLarge, regs.ExceptionReasonReasonHeadMore:
			err = a.take(h, false)
		case regs.ExceptionReasonReasonHeldMore:
			err = a.feed(h)
		}
		if err != nil && !errors.Is(err, driver.ErrState) && !errors.Is(err, driver.ErrStaleHandle) {
			a.t.Errorf("reason %d: %v", e.ReasonReason, err)
		}
	}
	a.card.CommitExceptions()
}

func (a *alterer) take(h driver.Handle, keep bool) error {
	room := make([]byte, regs.HeadBytes)
	n, _, err := a.card.TakeHead(context.Background(), h, keep, room)
	if err != nil {
		return err
	}
	a.gather[h] = append(a.gather[h], room[:n]...)
	b := a.gather[h]
	head, of := a.policy.apply(b)
	if of == 0 {
		return nil
	}
	for tail := []byte(nil); ; {
		stream := slices.Concat(head, b[of:], tail)
		a.streams[h] = stream
		_, err = a.card.Connect(context.Background(), h, &driver.Connect{Group: true, Replace: stream[:min(len(stream), regs.HeadBytes)], Inserted: int32(len(head) - of)})
		if keep || !errors.Is(err, driver.ErrState) {
			return err
		}
		// More has come meanwhile, or another question is older than the answer.
		if n, _, err = a.card.TakeHead(context.Background(), h, true, room); err != nil {
			return err
		}
		tail = bytes.Clone(room[:n])
		a.met++
	}
}

func (a *alterer) feed(h driver.Handle) error {
	p, err := a.card.Page(context.Background(), h.N())
	if err != nil || p.ControlGeneration != h.Generation() {
		return err
	}
	at := (p.AAckServer - p.AIsn - 1) / regs.HeadBytes * regs.HeadBytes
	part := bytes.Clone(a.streams[h][at:])
	if part = part[:min(len(part), regs.HeadBytes)]; a.wrong > 0 && at == regs.HeadBytes {
		part[a.wrong] ^= 1
	}
	return a.card.Feed(context.Background(), h, part)
}

// altered runs a transfer whose request is altered, over bad wires, and returns what the oracle has to say.
func altered(t *testing.T, head int, policy alteration, told alteration, how port.Impairment, options peers, wrong int) []oracle.Violation {
	t.Helper()
	x := newTransfer(100_000, 50_000)
	x.up.head = request[:len(request)-2] + "X: " + strings.Repeat("x", max(head-len(request)-5, 0)) + "\r\n\r\n"
	x.up.want = int64(len(x.up.head)) + 100_000
	cfg := config{promise: options.promise(), wires: [2]port.Impairment{how, how}, seed: 3, headBytes: 80 << 10,
		altered: func(_, _ netip.AddrPort, sent []byte) ([]byte, int) { return told.apply(sent) }}
	options.set(&cfg.client)
	options.set(&cfg.server)
	server := newTransfer(0, x.down.want)
	instead, _ := policy.apply([]byte(x.up.head))
	server.up.head, server.up.want = string(instead), int64(len(instead))+100_000
	server.up.head += string(x.up.at(int64(len(x.up.head)), 251-len(instead)%251)) // brings the pattern back in step
	up := &checked{head: instead, skip: len(x.up.head)}
	cfg.client.Handle = x.handle(0)
	cfg.server.Handle = func(c *tcppeer.Conn, e tcppeer.Event) {
		switch e {
		case tcppeer.Established:
			x.conns[1] = c
			x.down.push(c)
		case tcppeer.Data:
			up.take(c)
			x.up.got = up.got - int64(len(instead)) + int64(len(x.up.head))
		case tcppeer.PeerClosed:
			x.up.ended = true
		case tcppeer.Closed, tcppeer.Reset, tcppeer.TimedOut:
			x.ends[1], x.conns[1] = e, nil
		}
		x.pump(1)
	}
	n := newNetwork(t, cfg)
	a := n.alters(cfg, policy)
	a.wrong = wrong
	if _, err := n.client.Host.Dial(n.now, netip.AddrPortFrom(clientAddress, 40_000), vip); err != nil {
		t.Fatal(err)
	}
	n.until("transfer", time.Hour, func() bool { a.step(); return x.done() })
	x.up.bad = up.bad
	if wrong == 0 {
		x.check(t)
	}
	return n.oracle.Finish()
}

// checked compares what a server gets with an altered head and the pattern behind it.
type checked struct {
	head []byte
	skip int // bytes of the client's head
	got  int64
	bad  string
}

func (k *checked) take(c *tcppeer.Conn) {
	for _, b := range c.Bytes() {
		want := byte(0)
		if k.got < int64(len(k.head)) {
			want = k.head[k.got]
		} else {
			want = pattern[(k.got-int64(len(k.head))+int64(k.skip))%251]
		}
		if b != want && k.bad == "" {
			k.bad = fmt.Sprintf("byte %d is another", k.got)
		}
		k.got++
	}
	c.Discard(len(c.Bytes()))
}

var policies = []struct {
	name   string
	head   int
	policy alteration
}{
	{"PROXY", 0, alteration{before: "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc6\x12\x00\x64\xc6\x12\x00\x50\x9c\x40\x00\x50"}},
	{"field", 2000, alteration{field: "X-Forwarded-For: 198.18.0.100\r\nConnection: close\r\n"}},
	{"outgrows the buffer", 8100, alteration{before: "PROXY", field: "X-Long: " + strings.Repeat("l", 300) + "\r\n"}},
	{"gathered", 40_000, alteration{before: "PROXY", field: "X-Forwarded-For: 198.18.0.100\r\n"}},
	{"gathered, the largest", 65_000, alteration{field: "X-Long: " + strings.Repeat("l", 8000) + "\r\n"}},
}

// TestAltered: the host alters requests through the driver, over bad wires, and the oracle, which knows the policy, has
// nothing to say.
func TestAltered(t *testing.T) {
	for _, p := range policies {
		for _, w := range wires {
			for _, options := range []peers{{}, {7, true, true}} {
				if testing.Short() && w.name != "loss" {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %v", p.name, w.name, options), func(t *testing.T) {
					for i, v := range altered(t, p.head, p.policy, p.policy, w.how, options, 0) {
						if i < 5 {
							t.Error(v)
						}
					}
				})
			}
		}
	}
}

// TestAlteredCanFail: a host that does not what it says is found out.
func TestAlteredCanFail(t *testing.T) {
	p := policies[3]
	if vs := altered(t, p.head, p.policy, p.policy, port.Impairment{}, peers{}, 100); len(vs) == 0 || vs[0].Kind != oracle.Bytes {
		t.Errorf("a wrong byte among those that are fed: %v", vs)
	}
	told := p.policy
	told.before = "QROXY"
	if vs := altered(t, p.head, p.policy, told, port.Impairment{}, peers{}, 0); len(vs) == 0 || vs[0].Kind != oracle.Bytes {
		t.Errorf("another byte inserted: %v", vs)
	}
}
