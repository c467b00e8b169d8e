package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/emu/cam"
	"splicenic/emu/frame"
	"splicenic/emu/hostif"
	"splicenic/emu/regfile"
	"splicenic/emu/ssram"
	"splicenic/regs"
)

// bench is a Core over small memories with one service, configured as a host would.
type bench struct {
	t   testing.TB
	r   *regfile.File
	m   *ssram.Memory
	c   *Core
	out *Output
	now time.Duration
	buf []frame.Frame
	ram hostRAM // where attach was called

	ports uint16 // client ports given out
}

var (
	clientMAC = [6]byte{2, 0, 0, 0, 0, 1}
	serverMAC = [6]byte{2, 0, 0, 0, 0, 2}
	portMAC   = [2][6]byte{{2, 0x5c, 0x1c, 0, 0, 1}, {2, 0x5c, 0x1c, 0, 0, 2}}
)

// world is the addresses of one family.
type world struct {
	client, vip, server netip.Addr
	vlanClient          uint16
	vlanServer          uint16
	kind                uint32
}

var (
	world4 = world{client: netip.MustParseAddr("198.18.0.10"), vip: netip.MustParseAddr("198.18.0.80"), server: netip.MustParseAddr("198.18.1.11"), kind: kindIPv4}
	world6 = world{client: netip.MustParseAddr("2001:db8::10"), vip: netip.MustParseAddr("2001:db8::80"), server: netip.MustParseAddr("2001:db8:1::11"), kind: kindIPv6}
)

func words(a netip.Addr) (w [4]uint32) {
	if a.Is4() {
		b := a.As4()
		w[0] = binary.BigEndian.Uint32(b[:])
		return w
	}
	b := a.As16()
	for i := range w {
		w[i] = binary.BigEndian.Uint32(b[12-4*i:])
	}
	return w
}

func mac(m [6]byte) (lo, hi uint32) {
	return binary.BigEndian.Uint32(m[2:]), uint32(binary.BigEndian.Uint16(m[:]))
}

func smallGeometry() ssram.Geometry {
	return ssram.Geometry{Pages: 256, Heads: 32, CamClientWords: 1024, CamServerWords: 1024, Listeners: 16, Services: 16, Groups: 16, Servers: 16,
		NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 256, Slots: 16, LocalPorts: 4096}
}

// buffers are the output and the received frames of a bench; one is used again by the next.
var buffers = sync.Pool{New: func() any {
	fs := make([]frame.Frame, BatchMax)
	for i := range fs {
		fs[i].Buf = make([]byte, frame.Headroom+frame.MaxBytes)
	}
	return &[2]any{NewOutput(2048), fs}
}}

func newBench(t testing.TB, g ssram.Geometry) *bench {
	t.Helper()
	m, err := ssram.New(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	b := &bench{t: t, r: regfile.New(), m: m}
	m.Geometry.Store(b.r)
	h := hostif.New(b.r, nil)
	b.c = New(b.r, m, cam.New(m.CamClient, b.r, regs.CamClient), cam.New(m.CamServer, b.r, regs.CamServer), h)
	b.c.ResetDataPath()
	x := buffers.Get().(*[2]any)
	t.Cleanup(func() { buffers.Put(x) })
	b.out, b.buf = x[0].(*Output), x[1].([]frame.Frame)
	b.out.Reset()
	b.r.Set(regs.AmuControl, regs.AmuControlEnableMask)
	for i, a := range portMAC {
		lo, hi := mac(a)
		b.r.Set(regs.PortMacLo+regs.Reg(i)*regs.PortStride, lo)
		b.r.Set(regs.PortMacHi+regs.Reg(i)*regs.PortStride, hi)
		b.r.Set(regs.PortMtu+regs.Reg(i)*regs.PortStride, 1500)
	}
	return b
}

// jumbo lets everything through the ports that fits a frame of theirs.
func (b *bench) jumbo() {
	for i := range regs.Reg(regs.PortInstances) {
		b.r.Set(regs.PortMtu+i*regs.PortStride, 9000)
	}
}

func set(mem []uint32, index int, n int, e interface{ Encode([]uint32) }) {
	e.Encode(mem[index*n : (index+1)*n])
}

// serve configures VIP, listener on port 80, a default group of one server on port 8080, and its next hop, at index i.
func (b *bench) serve(w world, i int, promise regs.ServiceEntry) {
	promise.ControlValid, promise.ControlHasDefault, promise.DefaultGroup = 1, 1, uint32(i)
	if promise.PromiseMssIpv4 == 0 {
		promise.PromiseMssIpv4, promise.PromiseMssIpv6 = 1460, 1440
	}
	set(b.m.Vip, i, regs.AddressWords, &regs.AddressEntry{ControlValid: 1, ControlKind: w.kind, Address: words(w.vip)})
	for bank := range 2 {
		set(b.m.Listener[bank], i, regs.ListenerWords, &regs.ListenerEntry{ControlValid: 1, ControlProtocol: 6, ControlPort: 80, IndexVip: uint32(i), IndexService: uint32(i)})
		set(b.m.Service[bank], i, regs.ServiceWords, &promise)
		set(b.m.Group[bank], i, regs.GroupWords, &regs.GroupEntry{ControlValid: 1})
	}
	set(b.m.Slot, 2*i*int(b.m.Geometry.Slots), regs.SlotWords, &regs.SlotEntry{SlotServer: uint32(i), SlotValid: 1})
	set(b.m.GroupState, i, regs.GroupStateWords, &regs.GroupStateEntry{SelectorCountA: 1})
	set(b.m.Server, i, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: w.kind, ControlProtocol: 6, ControlPort: 8080, RouteNextHop: uint32(i), Address: words(w.server)})
	lo, hi := mac(serverMAC)
	hop := regs.NextHopEntry{ControlValid: 1, ControlResolved: 1, ControlPort: 1, MacLo: lo, MacHiAddress: hi}
	if w.vlanServer != 0 {
		hop.ControlTagged, hop.ControlVlan = 1, uint32(w.vlanServer)
	}
	set(b.m.NextHop, i, regs.NextHopWords, &hop)
	b.m.Dirty = ^uint32(0)
}

// tcp describes a segment to build or one that was seen.
type tcp struct {
	from, to     netip.Addr
	sport, dport uint16
	seq, ack     uint32
	flags        uint8
	window       uint16
	options      []layers.TCPOption
	payload      []byte
	vlan         uint16
	ttl          uint8
	tos          uint8 // or traffic class
	ae           bool
	srcMAC       [6]byte
	dstMAC       [6]byte
}

// buildFrame serialises a segment with gopacket, checksums and all.
func buildFrame(t testing.TB, s *tcp) []byte {
	t.Helper()
	if s.ttl == 0 {
		s.ttl = 64
	}
	eth := &layers.Ethernet{SrcMAC: s.srcMAC[:], DstMAC: s.dstMAC[:], EthernetType: layers.EthernetTypeIPv4}
	th := &layers.TCP{SrcPort: layers.TCPPort(s.sport), DstPort: layers.TCPPort(s.dport), Seq: s.seq, Ack: s.ack, Window: s.window, Options: s.options,
		FIN: s.flags&flagFIN != 0, SYN: s.flags&flagSYN != 0, RST: s.flags&flagRST != 0, PSH: s.flags&flagPSH != 0, ACK: s.flags&flagACK != 0,
		URG: s.flags&flagURG != 0, ECE: s.flags&flagECE != 0, CWR: s.flags&flagCWR != 0, NS: s.ae}
	ls := []gopacket.SerializableLayer{eth}
	ether := layers.EthernetTypeIPv4
	var ip gopacket.SerializableLayer
	if s.from.Is4() {
		x := &layers.IPv4{Version: 4, TOS: s.tos, TTL: s.ttl, Protocol: layers.IPProtocolTCP, SrcIP: s.from.AsSlice(), DstIP: s.to.AsSlice(), Flags: layers.IPv4DontFragment}
		ip = x
		th.SetNetworkLayerForChecksum(x)
	} else {
		x := &layers.IPv6{Version: 6, TrafficClass: s.tos, HopLimit: s.ttl, NextHeader: layers.IPProtocolTCP, SrcIP: s.from.AsSlice(), DstIP: s.to.AsSlice()}
		ip, ether = x, layers.EthernetTypeIPv6
		th.SetNetworkLayerForChecksum(x)
	}
	eth.EthernetType = ether
	if s.vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		ls = append(ls, &layers.Dot1Q{VLANIdentifier: s.vlan, Type: ether})
	}
	ls = append(ls, ip, th, gopacket.Payload(s.payload))
	sb := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(sb, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return sb.Bytes()
}

// parseFrame decodes an emitted frame with gopacket and recomputes every checksum in full.
func parseFrame(t testing.TB, raw []byte) tcp {
	t.Helper()
	p := gopacket.NewPacket(raw, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("decode: %v\n% x", e.Error(), raw)
	}
	var s tcp
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	copy(s.srcMAC[:], eth.SrcMAC)
	copy(s.dstMAC[:], eth.DstMAC)
	if q, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok {
		s.vlan = q.VLANIdentifier
	}
	var pseudo []byte
	if x, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		s.from, _ = netip.AddrFromSlice(x.SrcIP)
		s.to, _ = netip.AddrFromSlice(x.DstIP)
		s.ttl, s.tos = x.TTL, x.TOS
		if got := reference(x.Contents); got != 0 {
			t.Fatalf("IPv4 header checksum wrong: sum leaves %#04x\n% x", got, raw)
		}
		pseudo = append(append(pseudo, x.SrcIP.To4()...), x.DstIP.To4()...)
	} else {
		x := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		s.from, _ = netip.AddrFromSlice(x.SrcIP)
		s.to, _ = netip.AddrFromSlice(x.DstIP)
		s.ttl, s.tos = x.HopLimit, x.TrafficClass
		pseudo = append(append(pseudo, x.SrcIP...), x.DstIP...)
	}
	s.from, s.to = s.from.Unmap(), s.to.Unmap()
	x, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		t.Fatalf("no TCP in % x", raw)
	}
	segment := append(slices.Clone(x.Contents), x.Payload...)
	pseudo = append(pseudo, 0, 0, byte(len(segment)>>8), byte(len(segment)), 0, 6)
	if got := reference(append(pseudo, segment...)); got != 0 {
		t.Fatalf("TCP checksum wrong: sum leaves %#04x\n% x", got, raw)
	}
	s.sport, s.dport, s.seq, s.ack, s.window, s.options, s.payload = uint16(x.SrcPort), uint16(x.DstPort), x.Seq, x.Ack, x.Window, x.Options, x.Payload
	s.flags, s.ae = x.Contents[13], x.Contents[12]&flagAE != 0
	return s
}

// reference is the slow one's complement sum, complemented: zero where a checksum is right.
func reference(b []byte) uint16 {
	var sum uint32
	for i, v := range b {
		if i%2 == 0 {
			sum += uint32(v) << 8
		} else {
			sum += uint32(v)
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// push runs raw frames of one port through the pipeline as one batch and returns what comes out, by port.
func (b *bench) push(port int, raws ...[]byte) (out [2][]tcp) {
	b.t.Helper()
	b.out.Reset()
	for i, raw := range raws {
		f := &b.buf[i]
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	}
	b.c.Advance(b.now)
	b.c.Process(port, b.buf[:len(raws)], b.out)
	return b.drain()
}

func (b *bench) drain() (out [2][]tcp) {
	b.t.Helper()
	for p := range b.out.Ports {
		for _, f := range b.out.Ports[p] {
			out[p] = append(out[p], parseFrame(b.t, f.Bytes()))
		}
	}
	b.out.Reset()
	return out
}

// wait lets time pass in steps of one millisecond and returns what the scan sends.
func (b *bench) wait(d time.Duration) (out [2][]tcp) {
	b.t.Helper()
	b.out.Reset()
	for end := b.now + d; b.now < end; {
		b.now += time.Millisecond
		b.c.Advance(b.now)
		for !b.c.Scan(b.out) {
		}
		o := b.drain()
		out[0], out[1] = append(out[0], o[0]...), append(out[1], o[1]...)
	}
	return out
}

// next lets time pass until the scan sends something, one frame to one port, and says how long that took.
func (b *bench) next(t testing.TB, port int) (tcp, time.Duration) {
	t.Helper()
	for start := b.now; b.now-start < 2*time.Minute; {
		if out := b.wait(time.Millisecond); len(out[0])+len(out[1]) != 0 {
			if len(out[1-port]) != 0 {
				t.Fatalf("sent to the other port: %v", out[1-port])
			}
			return one(t, out[port]), b.now - start
		}
	}
	t.Fatal("nothing is sent for two minutes")
	return tcp{}, 0
}

// rest lets the scan look at every page, and nothing else that takes time.
func (b *bench) rest() {
	b.now += 100 * time.Millisecond
	b.c.Advance(b.now)
	for !b.c.Scan(b.out) {
	}
	b.out.Reset()
}

// conn plays both kernels of one connection: it builds segments as the ends would.
type conn struct {
	b          *bench
	w          world
	port       uint16
	cseq, cack uint32 // the client's next seq and ack
	sseq, sack uint32 // the server's
	opts       []layers.TCPOption
	sopts      []layers.TCPOption
	ts         bool
	window     uint16

	serverWindow uint16
}

func (c *conn) client(flags uint8, payload string, opts ...layers.TCPOption) []byte {
	c.b.t.Helper()
	if c.window == 0 {
		c.window = 64000
	}
	raw := buildFrame(c.b.t, &tcp{from: c.w.client, to: c.w.vip, sport: c.port, dport: 80, seq: c.cseq, ack: c.cack, flags: flags, window: c.window,
		options: opts, payload: []byte(payload), vlan: c.w.vlanClient, srcMAC: clientMAC, dstMAC: portMAC[0]})
	c.cseq += uint32(len(payload))
	if flags&(flagSYN|flagFIN) != 0 {
		c.cseq++
	}
	return raw
}

func (c *conn) server(flags uint8, payload string, opts ...layers.TCPOption) []byte {
	c.b.t.Helper()
	if c.serverWindow == 0 {
		c.serverWindow = 1000
	}
	raw := buildFrame(c.b.t, &tcp{from: c.w.server, to: c.w.client, sport: 8080, dport: c.port, seq: c.sseq, ack: c.sack, flags: flags, window: c.serverWindow,
		options: opts, payload: []byte(payload), vlan: c.w.vlanServer, srcMAC: serverMAC, dstMAC: portMAC[1]})
	c.sseq += uint32(len(payload))
	if flags&(flagSYN|flagFIN) != 0 {
		c.sseq++
	}
	return raw
}

func one(t testing.TB, ss []tcp) tcp {
	t.Helper()
	if len(ss) != 1 {
		t.Fatalf("got %d frames, want 1: %v", len(ss), ss)
	}
	return ss[0]
}

func (s tcp) String() string {
	return fmt.Sprintf("%v:%d>%v:%d seq %#x ack %#x flags %#02x win %d len %d opts %v vlan %d", s.from, s.sport, s.to, s.dport, s.seq, s.ack, s.flags, s.window, len(s.payload), s.options, s.vlan)
}

func u32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func optTS(val, ecr uint32) layers.TCPOption {
	return layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: append(u32(val), u32(ecr)...)}
}

func optMSS(v uint16) layers.TCPOption {
	return layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{byte(v >> 8), byte(v)}}
}

func optWscale(v uint8) layers.TCPOption {
	return layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{v}}
}

var (
	optSACK = layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2}
	optNop  = layers.TCPOption{OptionType: layers.TCPOptionKindNop, OptionLength: 1}
)

func (s tcp) option(kind layers.TCPOptionKind) []byte {
	for _, o := range s.options {
		if o.OptionType == kind {
			if o.OptionData == nil {
				return []byte{}
			}
			return o.OptionData
		}
	}
	return nil
}
