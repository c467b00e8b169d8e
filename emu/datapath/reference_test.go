package datapath

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// The reference translator: decode, change the fields, write everything out again with sums in full. It knows nothing of
// differences, carries or odd offsets.

// leg is all that the translation of one connection depends on, apart from any page.
type leg struct {
	client, vip, server            netip.Addr
	cport, vport, sport            uint16
	deltaClient, deltaServer       uint32
	stampClient, stampServer       uint32
	shiftClient, shiftServer       int // of windows, left is positive
	sack, timestamps, ecn          bool
	tagClient, tagServer           bool
	vlanClient, vlanServer         uint16
	clientMAC                      [6]byte
	index                          int // of VIP, service, server and next hop
	sackBlocks, stamps, sackDrops  uint64
	windowsRounded, windowsClamped uint64
	unmarked                       uint64
}

// translate is the frame that has to leave the other port.
func (l *leg) translate(t testing.TB, side Side, raw []byte) []byte {
	t.Helper()
	var eth layers.Ethernet
	must(t, eth.DecodeFromBytes(raw, gopacket.NilDecodeFeedback))
	rest, ether := eth.Payload, eth.EthernetType
	priority, tagged := byte(0), false
	if ether == layers.EthernetTypeDot1Q {
		var q layers.Dot1Q
		must(t, q.DecodeFromBytes(rest, gopacket.NilDecodeFeedback))
		priority, tagged = rest[0]&0xf0, true
		rest, ether = q.Payload, q.Type
	}

	tag, vlan, out := l.tagServer, l.vlanServer, [12]byte(append(serverMAC[:], portMAC[1][:]...))
	if side == ServerSide {
		tag, vlan, out = l.tagClient, l.vlanClient, [12]byte(append(l.clientMAC[:], portMAC[0][:]...))
	}
	frame := append([]byte(nil), out[:]...)
	if tag {
		if !tagged {
			priority = 0
		}
		frame = append(frame, 0x81, 0, priority|byte(vlan>>8), byte(vlan))
	}
	frame = binary.BigEndian.AppendUint16(frame, uint16(ether))
	if ether == layers.EthernetTypeIPv4 {
		return append(frame, l.ipv4(t, side, rest)...)
	}
	return append(frame, l.ipv6(t, side, rest)...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ends are the new addresses of a packet.
func (l *leg) ends(side Side) (src, dst []byte) {
	if side == ClientSide {
		return l.client.AsSlice(), l.server.AsSlice()
	}
	return l.vip.AsSlice(), l.client.AsSlice()
}

func (l *leg) ipv4(t testing.TB, side Side, b []byte) []byte {
	var ip layers.IPv4
	must(t, ip.DecodeFromBytes(b, gopacket.NilDecodeFeedback))
	ip.SrcIP, ip.DstIP = l.ends(side)
	ip.TTL--
	pseudo := append(append([]byte(nil), ip.SrcIP...), ip.DstIP...)
	tos := ip.TOS
	if !l.ecn {
		ip.TOS &= 0xfc
	}
	segment := l.tcp(side, pseudo, ip.Payload, tos != ip.TOS)
	sb := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(sb, gopacket.SerializeOptions{ComputeChecksums: true}, &ip, gopacket.Payload(segment)))
	return sb.Bytes()
}

func (l *leg) ipv6(t testing.TB, side Side, b []byte) []byte {
	header := append([]byte(nil), b[:40]...)
	payload := b[40 : 40+int(binary.BigEndian.Uint16(b[4:]))]
	src, dst := l.ends(side)
	copy(header[8:], src)
	copy(header[24:], dst)
	header[7]--
	class := header[1]
	if !l.ecn {
		header[1] &= 0xcf
	}
	next := header[6]
	for next == 0 || next == 60 { // options headers stay as they are
		n := 8 + 8*int(payload[1])
		next = payload[0]
		header, payload = append(header, payload[:n]...), payload[n:]
	}
	return append(header, l.tcp(side, append(append([]byte(nil), src...), dst...), payload, !l.ecn && class&0x30 != 0)...)
}

// tcp rewrites a segment. addresses are those of the new pseudo-header; unmarked says that its packet lost a mark.
func (l *leg) tcp(side Side, addresses, b []byte, unmarked bool) []byte {
	var h layers.TCP
	_ = h.DecodeFromBytes(b, gopacket.NilDecodeFeedback) // it refuses illegal options; the fields are there
	addSeq, takeAck, shift := l.deltaClient, l.deltaServer, l.shiftClient
	addVal, takeEcr := l.stampClient, l.stampServer
	src, dst := l.cport, l.sport
	if side == ServerSide {
		addSeq, takeAck, shift = l.deltaServer, l.deltaClient, l.shiftServer
		addVal, takeEcr = l.stampServer, l.stampClient
		src, dst = l.vport, l.cport
	}
	out := binary.BigEndian.AppendUint16(nil, src)
	out = binary.BigEndian.AppendUint16(out, dst)
	out = binary.BigEndian.AppendUint32(out, h.Seq+addSeq)
	if h.ACK {
		h.Ack -= takeAck
	}
	out = binary.BigEndian.AppendUint32(out, h.Ack)
	offset, flags := b[12], b[13]
	if !l.ecn {
		offset, flags = offset&0xfe, flags&0x3f
	}
	if unmarked || offset != b[12] || flags != b[13] {
		l.unmarked++
	}
	out = append(out, offset, flags)
	if !h.SYN {
		h.Window = l.window(h.Window, shift)
	}
	out = binary.BigEndian.AppendUint16(out, h.Window)
	out = append(out, 0, 0, b[18], b[19])
	hlen := int(h.DataOffset) * 4
	out = append(out, l.options(b[20:hlen], addVal, takeEcr, takeAck)...)
	out = append(out, b[hlen:]...)

	pseudo := append([]byte(nil), addresses...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(out)))
	pseudo = append(pseudo, 0, 0, 0, protocolTCP)
	binary.BigEndian.PutUint16(out[16:], reference(append(pseudo, out...)))
	return out
}

// window rescales: to the left it clamps, to the right it rounds up.
func (l *leg) window(v uint16, shift int) uint16 {
	w := uint64(v)
	for ; shift > 0; shift-- {
		w *= 2
	}
	if w > 65535 {
		l.windowsClamped++
		return 65535
	}
	rounded := false
	unit := uint64(1)
	for ; shift < 0; shift++ {
		unit *= 2
	}
	if w%unit != 0 {
		rounded = true
		w += unit - w%unit
	}
	if rounded {
		l.windowsRounded++
	}
	return uint16(w / unit)
}

// options rewrites timestamps and SACK edges; everything else, and all that follows an illegal length, stays.
func (l *leg) options(in []byte, addVal, takeEcr, takeAck uint32) []byte {
	out := append([]byte(nil), in...)
	for at := 0; at < len(out) && out[at] != 0; {
		if out[at] == 1 {
			at++
			continue
		}
		if at+1 == len(out) || out[at+1] < 2 || at+int(out[at+1]) > len(out) {
			break
		}
		o := out[at : at+int(out[at+1])]
		at += len(o)
		switch {
		case o[0] == 8 && len(o) == 10 && l.timestamps:
			l.stamps++
			binary.BigEndian.PutUint32(o[2:], binary.BigEndian.Uint32(o[2:])+addVal)
			if ecr := binary.BigEndian.Uint32(o[6:]); ecr != 0 {
				binary.BigEndian.PutUint32(o[6:], ecr-takeEcr)
			}
		case o[0] == 5 && !l.sack:
			l.sackDrops++
			for i := range o {
				o[i] = 1
			}
		case o[0] == 5 && (len(o) == 10 || len(o) == 18 || len(o) == 26 || len(o) == 34):
			l.sackBlocks += uint64(len(o)-2) / 8
			for i := 2; i < len(o); i += 4 {
				binary.BigEndian.PutUint32(o[i:], binary.BigEndian.Uint32(o[i:])-takeAck)
			}
		}
	}
	return out
}

// plantLeg puts a spliced connection with these parameters into the tables.
func (b *bench) plantLeg(l *leg) uint32 {
	b.t.Helper()
	c := b.c
	n, ok := c.allocate()
	if !ok {
		b.t.Fatal("no page")
	}
	w := c.page(n)
	kind := uint32(kindIPv4)
	if l.client.Is6() {
		kind = kindIPv6
	}
	w[regs.PageControl] = regs.SetPageControlKind(w[regs.PageControl], kind)
	w[regs.PageControl] = regs.SetPageControlServerPort(w[regs.PageControl], 1)
	w[regs.PagePorts] = uint32(l.cport) | uint32(l.vport)<<16
	w[regs.PageIndex] = uint32(l.index) | uint32(l.index)<<16
	link := uint32(l.vlanClient)
	if l.tagClient {
		link |= regs.PageClientLinkTaggedMask
	}
	w[regs.PageClientLink] = link
	lo, hi := mac(l.clientMAC)
	w[regs.PageClientMacLo], w[regs.PageClientMacHi] = lo, hi|1460<<16
	a := words(l.client)
	copy(w[regs.PageClientAddress:], a[:])
	w[regs.PageAIndex] = uint32(l.index)
	w[regs.PageALocal] = uint32(l.cport) | 1460<<16
	w[regs.PageADeltaClient], w[regs.PageADeltaServer] = l.deltaClient, l.deltaServer
	w[regs.PageATimestampClient], w[regs.PageATimestampServer] = l.stampClient, l.stampServer
	s := regs.SetPageAScaleVlan(regs.PageAScaleArmedMask|regs.PageAScaleChecksumReadyMask, uint32(l.vlanServer))
	s = regs.SetPageAScaleServer(regs.SetPageAScaleClient(s, uint32(l.shiftClient)), uint32(l.shiftServer))
	if l.sack {
		s |= regs.PageAScaleSackMask
	}
	if l.timestamps {
		s |= regs.PageAScaleTimestampsMask
	}
	if l.ecn {
		s |= regs.PageAScaleEcnMask
	}
	w[regs.PageAScale] = s
	w[regs.PageAChecksum] = c.differences(w)
	w[regs.PageLastSeen] = c.tick
	c.setState(w, Spliced)
	serverKey := func(w *page) (camKey, uint64) { return c.serverKey(w, 0) }
	for side, key := range [...]func(*page) (k camKey, h uint64){c.clientKey, serverKey} {
		k, h := key(w)
		if got := c.cams[side].Insert(&k, h, handleOf(n, w), false); got != 0 {
			b.t.Fatalf("insert into CAM %d: result %d", side, got)
		}
	}
	c.serverUse(w, 1)
	c.serverActive(w, 1)
	return n
}
