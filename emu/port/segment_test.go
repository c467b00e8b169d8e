package port_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// super describes a coalesced TCP frame.
type super struct {
	ip6, extension bool
	tags           int // VLAN tags
	options        int // bytes of TCP options, a multiple of 4
	payload        int
	size           uint16 // of a segment
	flags          byte   // of TCP
	pad            int    // bytes behind the IP packet
	id             uint16
	seq            uint32
}

// layers builds the headers of one piece of the frame.
func (s super) layers(payload []byte, flags byte, id uint16, seq uint32) []gopacket.SerializableLayer {
	network := layers.EthernetTypeIPv4
	if s.ip6 {
		network = layers.EthernetTypeIPv6
	}
	ls := []gopacket.SerializableLayer{&layers.Ethernet{
		DstMAC: []byte{2, 0, 0, 0, 0, 2}, SrcMAC: []byte{2, 0, 0, 0, 0, 1}, EthernetType: network,
	}}
	for i := range s.tags {
		ls[0].(*layers.Ethernet).EthernetType = layers.EthernetTypeDot1Q
		tag := &layers.Dot1Q{VLANIdentifier: uint16(100 + i), Type: network}
		if i < s.tags-1 {
			tag.Type = layers.EthernetTypeDot1Q
		}
		ls = append(ls, tag)
	}
	tcp := &layers.TCP{
		SrcPort: 40000, DstPort: 80, Seq: seq, Ack: 7, Window: 1000, Urgent: 0,
		FIN: flags&1 != 0, SYN: flags&2 != 0, RST: flags&4 != 0, PSH: flags&8 != 0,
		ACK: flags&16 != 0, URG: flags&32 != 0, ECE: flags&64 != 0, CWR: flags&128 != 0,
	}
	if s.options != 0 {
		tcp.Options = []layers.TCPOption{{OptionType: 253, OptionLength: uint8(s.options), OptionData: make([]byte, s.options-2)}}
	}
	if s.ip6 {
		ip := &layers.IPv6{
			Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, TrafficClass: 2, FlowLabel: 0x12345,
			SrcIP: bytes.Repeat([]byte{0x20, 1}, 8), DstIP: bytes.Repeat([]byte{0x20, 2}, 8),
		}
		must(tcp.SetNetworkLayerForChecksum(ip))
		ls = append(ls, ip)
		if s.extension {
			ip.NextHeader = layers.IPProtocolIPv6Destination
			ls = append(ls, gopacket.Payload{byte(layers.IPProtocolTCP), 0, 1, 4, 0, 0, 0, 0})
		}
	} else {
		ip := &layers.IPv4{
			Version: 4, IHL: 5, TTL: 64, Id: id, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolTCP, TOS: 2,
			SrcIP: []byte{198, 18, 0, 10}, DstIP: []byte{198, 18, 0, 80},
		}
		must(tcp.SetNetworkLayerForChecksum(ip))
		ls = append(ls, ip)
	}
	return append(ls, tcp, gopacket.Payload(payload))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// bytes serializes one piece with full checksums.
func (s super) bytes(payload []byte, flags byte, id uint16, seq uint32) []byte {
	buf := gopacket.NewSerializeBuffer()
	must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true},
		s.layers(payload, flags, id, seq)...))
	// Without the padding that gopacket adds to a short frame.
	return append([]byte(nil), buf.Bytes()[:s.headerBytes()+20+s.options+len(payload)]...)
}

// headerBytes is where the TCP header begins.
func (s super) headerBytes() int {
	n := 14 + 4*s.tags + 20
	if s.ip6 {
		n += 20
	}
	if s.extension {
		n += 8
	}
	return n
}

// frame builds the coalesced frame with its partial checksum, and the payload that is in it.
func (s super) frame() (*frame.Frame, []byte) {
	r := rand.New(rand.NewPCG(uint64(s.payload), uint64(s.size)))
	payload := make([]byte, s.payload)
	for i := range payload {
		payload[i] = byte(r.Uint32())
	}
	b := s.bytes(payload, s.flags, s.id, s.seq)
	l4 := s.headerBytes()
	partial(b, l4, s.ip6)
	b = append(b, bytes.Repeat([]byte{0xaa}, s.pad)...)
	o := frame.Offload{
		Flags: frame.NeedsChecksum, GSOType: frame.GSOTCP4, GSOSize: s.size,
		HdrLen: uint16(l4 + 20 + s.options), CsumStart: uint16(l4), CsumOffset: 16,
	}
	if s.ip6 {
		o.GSOType = frame.GSOTCP6
	}
	return wrap(b, o), payload
}

// partial replaces a TCP checksum by the sum of the pseudo-header.
func partial(b []byte, l4 int, ip6 bool) {
	var sum uint64
	if ip6 {
		ip := b[bytes.Index(b, bytes.Repeat([]byte{0x20, 1}, 8))-8:]
		sum = frame.Pseudo6(ip, 6, len(b)-l4)
	} else {
		sum = frame.Pseudo4(b[l4-20:], 6, len(b)-l4)
	}
	binary.BigEndian.PutUint16(b[l4+16:], frame.Fold(sum))
}

// wrap puts bytes behind the headroom of a buffer of their own.
func wrap(b []byte, o frame.Offload) *frame.Frame {
	buf := append(make([]byte, frame.Headroom), b...)
	return &frame.Frame{Buf: buf, Start: frame.Headroom, End: uint32(len(buf)), Offload: o}
}

// room is an empty frame for what a Cutter writes.
func room() *frame.Frame {
	return &frame.Frame{Buf: make([]byte, frame.Headroom+frame.MaxBytes), Start: frame.Headroom, End: frame.Headroom}
}

// cut returns the wire frames of f.
func cut(f *frame.Frame) ([][]byte, port.Verdict) {
	var c port.Cutter
	n, v := c.Begin(f)
	var out [][]byte
	for dst := room(); v == port.Good && c.Next(dst); {
		if dst.Offload != (frame.Offload{}) {
			panic("a wire frame with an offload header")
		}
		out = append(out, append([]byte(nil), dst.Bytes()...))
	}
	if int(n) != len(out) {
		panic(fmt.Sprintf("announced %d wire frames, got %d", n, len(out)))
	}
	return out, v
}

// reference cuts by building every wire frame from scratch with gopacket.
func (s super) reference(payload []byte) [][]byte {
	var out [][]byte
	for at, i := 0, 0; at < len(payload) || i == 0; at, i = at+int(s.size), i+1 {
		to := min(at+int(s.size), len(payload))
		flags := s.flags
		if i > 0 {
			flags &^= 0x80 // CWR
		}
		if to < len(payload) {
			flags &^= 0x01 | 0x08 // FIN, PSH
		}
		out = append(out, s.bytes(payload[at:to], flags, s.id+uint16(i), s.seq+uint32(at)))
	}
	return out
}

func TestCutter(t *testing.T) {
	const pshAck, all = 0x18, 0x80 | 0x40 | 0x10 | 0x08 | 0x01
	for _, tt := range []struct {
		name string
		s    super
	}{
		{"IPv4", super{payload: 4000, size: 1460, flags: pshAck}},
		{"IPv6", super{ip6: true, payload: 4000, size: 1440, flags: pshAck}},
		{"exact multiple", super{payload: 4380, size: 1460, flags: pshAck}},
		{"one byte over", super{payload: 1461, size: 1460, flags: pshAck}},
		{"one segment", super{payload: 100, size: 1460, flags: pshAck}},
		{"no payload", super{size: 1460, flags: 0x10}},
		{"odd size", super{payload: 5001, size: 999, flags: pshAck}},
		{"smallest size", super{payload: 1000, size: port.MinSegment, flags: pshAck}},
		{"tag", super{tags: 1, payload: 4000, size: 1456, flags: pshAck}},
		{"two tags", super{tags: 2, ip6: true, payload: 4000, size: 1456, flags: pshAck}},
		{"options", super{options: 40, payload: 4000, size: 1420, flags: pshAck}},
		{"IPv6 options header", super{ip6: true, extension: true, payload: 4000, size: 1420, flags: pshAck}},
		{"FIN, PSH and CWR", super{payload: 4000, size: 1460, flags: all}},
		{"IPv6 FIN, PSH and CWR", super{ip6: true, payload: 4000, size: 1460, flags: all}},
		{"64 KiB", super{payload: 65535 - 40, size: 1460, flags: pshAck}},
		{"IPv6 64 KiB", super{ip6: true, payload: 65535 - 20, size: 1440, flags: pshAck}},
		{"sequence wraps", super{payload: 4000, size: 1460, seq: 1<<32 - 2000, flags: pshAck}},
		{"identification wraps", super{payload: 4000, size: 1460, id: 0xffff, flags: pshAck}},
		{"padding", super{payload: 4001, size: 1460, pad: 6, flags: pshAck}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, payload := tt.s.frame()
			got, v := cut(f)
			if v != port.Good {
				t.Fatalf("verdict %v", v)
			}
			want := tt.s.reference(payload)
			if len(got) != len(want) {
				t.Fatalf("got %d wire frames, want %d", len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("wire frame %d differs (-want +got):\n%s", i, cmp.Diff(want[i], got[i]))
				}
				verify(t, got[i])
			}
		})
	}
}

// verify decodes a wire frame independently and recomputes its checksums in full.
func verify(t testing.TB, b []byte) {
	t.Helper()
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
	if p.ErrorLayer() != nil {
		t.Fatalf("gopacket: %v in %x", p.ErrorLayer().Error(), b)
	}
	if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		if s := referenceSum(ip.Contents); s != 0xffff {
			t.Errorf("IPv4 header sums to %#04x", s)
		}
	}
	n := p.NetworkLayer()
	tr := p.TransportLayer()
	if n == nil || tr == nil {
		t.Fatalf("no transport layer in %x", b)
	}
	src, dst := n.NetworkFlow().Endpoints()
	protocol := byte(6)
	if tr.LayerType() == layers.LayerTypeUDP {
		protocol = 17
	}
	l4 := append(append([]byte(nil), tr.LayerContents()...), tr.LayerPayload()...)
	pseudo := append(append([]byte(nil), src.Raw()...), dst.Raw()...)
	pseudo = append(pseudo, 0, protocol, byte(len(l4)>>8), byte(len(l4)))
	if s := referenceSum(append(pseudo, l4...)); s != 0xffff {
		t.Errorf("transport checksum: sums to %#04x", s)
	}
}

// referenceSum is RFC 1071 word by word.
func referenceSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// plain builds a plain frame whose checksum is partial.
func plain(s super, pad []byte) *frame.Frame {
	f, _ := s.frame()
	f.Buf = append(f.Buf, pad...)
	f.End += uint32(len(pad))
	f.Offload.GSOType, f.Offload.GSOSize = frame.GSONone, 0
	return f
}

func TestComplete(t *testing.T) {
	udp := func() *frame.Frame {
		// Port numbers chosen so that the sum comes out as zero, which UDP writes as all ones.
		b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
			0x45, 0, 0, 28, 0, 1, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 10, 198, 18, 0, 80,
			0, 0, 0, 53, 0, 8, 0, 0}
		binary.BigEndian.PutUint16(b[24:], ^referenceSum(b[14:34]))
		pseudo := frame.Fold(frame.Pseudo4(b[14:], 17, 8))
		binary.BigEndian.PutUint16(b[40:], pseudo)
		binary.BigEndian.PutUint16(b[34:], ^frame.Fold(uint64(pseudo)+53+8))
		return wrap(b, frame.Offload{Flags: frame.NeedsChecksum, CsumStart: 34, CsumOffset: 6})
	}
	for _, tt := range []struct {
		name string
		f    *frame.Frame
	}{
		{"IPv4", plain(super{payload: 101, flags: 0x18}, nil)},
		{"IPv6", plain(super{ip6: true, payload: 100, flags: 0x18}, nil)},
		{"tagged", plain(super{tags: 1, payload: 100, flags: 0x18}, nil)},
		{"A17: padded with zeros", plain(super{flags: 0x10}, make([]byte, 6))},
		{"A17: padded with junk", plain(super{flags: 0x10}, bytes.Repeat([]byte{0xaa}, 6))},
		{"A27: SYN with the pseudo-header's sum", plain(super{flags: 0x02, options: 20}, nil)},
		{"UDP zero", udp()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := *tt.f
			viaCutter, v := cut(tt.f)
			if v != port.Good || len(viaCutter) != 1 {
				t.Fatalf("cutter: verdict %v, %d frames", v, len(viaCutter))
			}
			if v := port.Complete(tt.f); v != port.Good {
				t.Fatalf("verdict %v", v)
			}
			if tt.f.Offload != (frame.Offload{}) || tt.f.Start != before.Start || tt.f.End != before.End {
				t.Errorf("frame is now %d:%d %+v", tt.f.Start, tt.f.End, tt.f.Offload)
			}
			verify(t, tt.f.Bytes())
			if d := cmp.Diff(tt.f.Bytes(), viaCutter[0]); d != "" {
				t.Errorf("the cutter's frame differs:\n%s", d)
			}
		})
	}
	f := udp()
	port.Complete(f)
	if got := binary.BigEndian.Uint16(f.Bytes()[40:]); got != 0xffff {
		t.Errorf("UDP checksum %#04x, want 0xffff", got)
	}
}

// TestUnflaggedIsNotRepaired is A27's other half: nothing touches a checksum that nobody declared partial.
func TestUnflaggedIsNotRepaired(t *testing.T) {
	f := plain(super{flags: 0x02}, nil)
	f.Offload = frame.Offload{}
	want := append([]byte(nil), f.Bytes()...)
	if v := port.Complete(f); v != port.Good || !bytes.Equal(f.Bytes(), want) {
		t.Errorf("plain: verdict %v, changed: %t", v, !bytes.Equal(f.Bytes(), want))
	}
	f, _ = super{payload: 4000, size: 1460, flags: 0x10}.frame()
	f.Offload.Flags = 0
	if _, v := cut(f); v != port.BadChecksum {
		t.Errorf("coalesced: verdict %v, want %v", v, port.BadChecksum)
	}
}

func TestHostileOffload(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    super
		bad  func(f *frame.Frame)
		want port.Verdict
	}{
		{"csum_start in the Ethernet header", super{payload: 100}, func(f *frame.Frame) { f.Offload.GSOType, f.Offload.CsumStart = 0, 13 }, port.BadChecksum},
		{"csum_start past the frame", super{payload: 100}, func(f *frame.Frame) { f.Offload.GSOType, f.Offload.CsumStart = 0, 60000 }, port.BadChecksum},
		{"csum_offset past the frame", super{payload: 100}, func(f *frame.Frame) { f.Offload.GSOType, f.Offload.CsumOffset = 0, 65535 }, port.BadChecksum},
		{"field half outside", super{payload: 0}, func(f *frame.Frame) { f.Offload.GSOType, f.Offload.CsumOffset = 0, 19 }, port.BadChecksum},
		{"plain, empty frame", super{}, func(f *frame.Frame) { f.Offload.GSOType, f.End = 0, f.Start }, port.BadChecksum},
		{"coalesced, csum_start in the payload", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Offload.CsumStart += 20 }, port.BadChecksum},
		{"coalesced, csum_start past the frame", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Offload.CsumStart = 65535 }, port.BadChecksum},
		{"coalesced, csum_offset of UDP", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Offload.CsumOffset = 6 }, port.BadChecksum},
		{"gso_size 0", super{payload: 4000}, func(*frame.Frame) {}, port.BadSize},
		{"gso_size below the bound", super{payload: 4000, size: port.MinSegment - 1}, func(*frame.Frame) {}, port.BadSize},
		{"UDP fragmentation", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Offload.GSOType = frame.GSOUDP }, port.BadType},
		{"unknown type", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Offload.GSOType = 77 }, port.BadType},
		{"IPv6 type on IPv4", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Offload.GSOType = frame.GSOTCP6 }, port.BadHeaders},
		{"empty frame", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.End = f.Start }, port.BadHeaders},
		{"cut in the Ethernet header", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.End = f.Start + 13 }, port.BadHeaders},
		{"cut in a tag", super{tags: 1, payload: 4000, size: 1460}, func(f *frame.Frame) { f.End = f.Start + 16 }, port.BadHeaders},
		{"cut in the IP header", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.End = f.Start + 33 }, port.BadHeaders},
		{"cut in the payload", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.End-- }, port.BadHeaders},
		{"IP length of the header only", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[16], f.Bytes()[17] = 0, 20 }, port.BadHeaders},
		{"IP length 5", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[16], f.Bytes()[17] = 0, 5 }, port.BadHeaders},
		{"IP length 0", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[16], f.Bytes()[17] = 0, 0 }, port.BadHeaders},
		{"IP header of 16 bytes", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[14] = 0x44 }, port.BadHeaders},
		{"fragment", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[20] = 0x20 }, port.BadHeaders},
		{"UDP inside", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[23] = 17 }, port.BadHeaders},
		{"TCP header of 16 bytes", super{payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[46] = 0x40 }, port.BadHeaders},
		{"TCP header past the packet", super{payload: 8, size: 1460}, func(f *frame.Frame) { f.Bytes()[46] = 0xf0 }, port.BadHeaders},
		{"IPv6 length 0", super{ip6: true, payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[18], f.Bytes()[19] = 0, 0 }, port.BadHeaders},
		{"IPv6 routing header", super{ip6: true, extension: true, payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[20] = 43 }, port.BadHeaders},
		{"IPv6 options past the packet", super{ip6: true, extension: true, payload: 400, size: 1460}, func(f *frame.Frame) { f.Bytes()[55] = 255 }, port.BadHeaders},
		{"IPv6 endless options", super{ip6: true, payload: 4000, size: 1460}, func(f *frame.Frame) { f.Bytes()[20] = 0; clear(f.Bytes()[54:]) }, port.BadHeaders},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := tt.s.frame()
			tt.bad(f)
			got, v := cut(f)
			if v != tt.want || len(got) != 0 {
				t.Errorf("got %v and %d wire frames, want %v and none", v, len(got), tt.want)
			}
			// In place: the same for plain frames, and coalesced ones are not its business.
			want := tt.want
			if f.Offload.GSOType != 0 {
				want = port.BadType
			}
			if v := port.Complete(f); v != want {
				t.Errorf("Complete: got %v, want %v", v, want)
			}
		})
	}
}

// TestCutterAllocates nothing.
func TestCutterAllocates(t *testing.T) {
	f, _ := super{payload: 60000, size: 1460, flags: 0x18}.frame()
	dst := room()
	var c port.Cutter
	n := testing.AllocsPerRun(100, func() {
		c.Begin(f)
		for c.Next(dst) {
		}
		p := *f
		p.Offload.GSOType = frame.GSONone
		port.Complete(&p)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCutter hands arbitrary frames with arbitrary offload headers over: no panic, nothing lost, every sum right.
func FuzzCutter(f *testing.F) {
	for _, s := range []super{
		{payload: 100, size: 40, flags: 0x19}, {ip6: true, payload: 100, size: 33, flags: 0x99},
		{tags: 2, options: 12, payload: 50, size: 8}, {ip6: true, extension: true, payload: 20, size: 1460}, {pad: 6, size: 9},
	} {
		sf, _ := s.frame()
		o := sf.Offload
		f.Add(sf.Bytes(), o.Flags, o.GSOType, o.HdrLen, o.GSOSize, o.CsumStart, o.CsumOffset)
		f.Add(sf.Bytes(), o.Flags, byte(0), o.HdrLen, uint16(0), o.CsumStart, o.CsumOffset)
	}
	f.Fuzz(func(t *testing.T, b []byte, flags, gsoType byte, hdrLen, size, start, offset uint16) {
		if len(b) > frame.MaxBytes {
			return
		}
		in := wrap(b, frame.Offload{Flags: flags, GSOType: gsoType, HdrLen: hdrLen, GSOSize: size, CsumStart: start, CsumOffset: offset})
		out, v := cut(in)
		if !bytes.Equal(in.Bytes(), b) {
			t.Fatal("the cutter changed its input")
		}
		coalesced := gsoType&^frame.GSOECN != 0
		if v == port.Good && coalesced {
			checkSegments(t, b, out, int(size))
		}
		completed := port.Complete(in)
		if coalesced != (completed == port.BadType) {
			t.Fatalf("Complete of GSO type %d: %v", gsoType, completed)
		}
		if !coalesced && (completed != v || v == port.Good && !bytes.Equal(in.Bytes(), out[0])) {
			t.Fatalf("Complete and Cutter differ: %v and %v", completed, v)
		}
	})
}

// checkSegments checks wire frames by offsets alone: sums, sizes, and that the payload is all there.
func checkSegments(t *testing.T, whole []byte, out [][]byte, size int) {
	t.Helper()
	var joined []byte
	var l4 int
	for i, b := range out {
		l3 := 14
		for l3 < 22 && (b[l3-2] == 0x81 && b[l3-1] == 0 || b[l3-2] == 0x88 && b[l3-1] == 0xa8) {
			l3 += 4
		}
		var pseudo []byte
		if b[l3]>>4 == 4 {
			l4 = l3 + int(b[l3]&15)*4
			if s := referenceSum(b[l3:l4]); s != 0xffff {
				t.Fatalf("segment %d: IPv4 header sums to %#04x", i, s)
			}
			pseudo = append(pseudo, b[l3+12:l3+20]...)
		} else {
			l4 = l3 + 40
			for next := b[l3+6]; next != 6; next, l4 = b[l4], l4+8+int(b[l4+1])*8 {
			}
			pseudo = append(pseudo, b[l3+8:l3+40]...)
		}
		n := len(b) - l4
		pseudo = append(pseudo, 0, 6, byte(n>>8), byte(n))
		if s := referenceSum(append(pseudo, b[l4:]...)); s != 0xffff {
			t.Fatalf("segment %d: TCP sums to %#04x", i, s)
		}
		payload := b[l4+int(b[l4+12]>>4)*4:]
		if len(payload) > size || len(payload) < size && i < len(out)-1 {
			t.Fatalf("segment %d of %d has %d bytes, gso_size is %d", i, len(out), len(payload), size)
		}
		joined = append(joined, payload...)
	}
	at := l4 + int(whole[l4+12]>>4)*4
	if rest := whole[at:]; len(joined) > len(rest) || !bytes.Equal(joined, rest[:len(joined)]) {
		t.Fatal("the payload changed")
	}
}

func BenchmarkCutter(b *testing.B) {
	for _, size := range []uint16{536, 1448, 8948} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			f, _ := super{payload: 64000, size: size, options: 12, flags: 0x18}.frame()
			dst := room()
			var c port.Cutter
			b.SetBytes(int64(f.Len()))
			b.ReportAllocs()
			segments := 0
			for b.Loop() {
				n, _ := c.Begin(f)
				for c.Next(dst) {
				}
				segments += int(n)
			}
			b.ReportMetric(float64(segments)/b.Elapsed().Seconds(), "segments/s")
		})
	}
}

func BenchmarkComplete(b *testing.B) {
	for _, n := range []int{64, 1514, 9014} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			f := plain(super{payload: n - 54, flags: 0x18}, nil)
			o := f.Offload
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				f.Offload = o
				port.Complete(f)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}
