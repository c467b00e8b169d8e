package capture

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/driver"
	"splicenic/emu/port"
	"splicenic/regs"
)

// maxSegments bounds how many segments of a connection are followed.
const maxSegments = 20_000

// Segment is a segment of a connection on one of the wires.
type Segment struct {
	AtMS   float64 `json:"at_ms"` // since the connection's first
	Wire   string  `json:"wire"`  // client or server
	Frame  int     `json:"frame"` // its number in that wire's capture, from one
	From   string  `json:"from"`  // client, server or card
	Text   string  `json:"text"`
	Became *Image  `json:"became"` // what it was on the other wire; null: Note says why there is nothing
	Note   string  `json:"note"`

	decoded
	wire   int
	taken  bool // it is what another became
	nanos  int64
	isCard bool
}

// Image is what a segment became.
type Image struct {
	Frame  int     `json:"frame"` // on the other wire
	Fields []Field `json:"fields"`
}

// Field is a field before and after the card.
type Field struct {
	Name string `json:"name"`
	Was  string `json:"was"`
	Is   string `json:"is"`
	By   string `json:"by"`   // the page word; empty: none
	Fits bool   `json:"fits"` // it is what the page says; true where the page says nothing
}

// decoded is what matters of a segment.
type decoded struct {
	src, dst     netip.AddrPort
	ttl          uint8
	flags        string
	seq, ack     uint32
	hasACK       bool
	window       uint16
	length       int
	blocks       []uint32
	stamps       bool
	tsval, tsecr uint32
}

// Trace finds the segments of a page's connection in captures of both wires, and what became of those that passed.
func Trace(clientPcap, serverPcap string, p *regs.PageEntry) ([]Segment, error) {
	client := netip.AddrPortFrom(driver.Address(p.ControlKind, p.ClientAddress), uint16(p.PortsClient))
	leg := netip.AddrPortFrom(client.Addr(), uint16(p.ALocalPort))
	var all []Segment
	for wire, name := range []string{clientPcap, serverPcap} {
		list, err := read(name, wire, func(d *decoded) (isCard, ours bool) {
			if wire == 0 {
				return d.dst == client, d.src == client && d.dst.Port() == uint16(p.PortsVip) || d.dst == client && d.src.Port() == uint16(p.PortsVip)
			}
			return d.src == leg, d.src == leg || d.dst == leg
		})
		if err != nil {
			return nil, fmt.Errorf("read capture %s: %w", name, err)
		}
		all = append(all, list...)
	}
	// What goes to the card may be the cause of what comes from it at the same time.
	slices.SortStableFunc(all, func(a, b Segment) int {
		switch {
		case a.nanos != b.nanos:
			return int(min(max(a.nanos-b.nanos, -1), 1))
		case a.isCard != b.isCard:
			return map[bool]int{true: 1, false: -1}[a.isCard]
		}
		return 0
	})
	for i := range all {
		s := &all[i]
		s.AtMS = float64(s.nanos-all[0].nanos) / 1e6
		switch held := int32(s.seq-p.HeldBoundary) < 0; {
		case s.isCard && !s.taken:
			s.Note = "the card's own"
			if held := p.HeldBoundary + p.ADeltaClient; s.wire == 1 && s.length > 0 && int32(s.seq-held) < 0 {
				s.Note = "held bytes, sent by the card"
			}
		case s.isCard:
			s.Note = "passed on"
		case strings.Contains(s.flags, "SYN"):
			s.Note = "ends at the card"
		case s.wire == 0 && held && s.length > 0:
			s.Note = "kept by the card until the server has it"
		case s.wire == 0 && held || !pair(all[i:], p):
			s.Note = "ends at the card"
		}
	}
	return all, nil
}

// read reads the segments of a connection that pass a wire.
func read(name string, wire int, ours func(*decoded) (isCard, ours bool)) ([]Segment, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := port.NewCapture(f)
	if err != nil {
		return nil, err
	}
	var list []Segment
	for n := 1; len(list) < maxSegments; n++ {
		b, at, err := c.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		s := Segment{Wire: [...]string{"client", "server"}[wire], wire: wire, Frame: n, nanos: at}
		if !s.decode(b) {
			continue
		}
		var mine bool
		if s.isCard, mine = ours(&s.decoded); !mine {
			continue
		}
		if s.From = s.Wire; s.isCard {
			s.From = "card"
		}
		s.Text = fmt.Sprintf("%s seq 0x%08x ack 0x%08x window %d, %d bytes", s.flags, s.seq, s.ack, s.window, s.length)
		list = append(list, s)
	}
	return list, nil
}

// decode reads a frame and says whether it is a TCP segment.
func (d *decoded) decode(b []byte) bool {
	packet := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	t, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		return false
	}
	var src, dst netip.Addr
	total := 0
	switch ip := packet.NetworkLayer().(type) {
	case *layers.IPv4:
		src, _ = netip.AddrFromSlice(ip.SrcIP.To4())
		dst, _ = netip.AddrFromSlice(ip.DstIP.To4())
		d.ttl, total = ip.TTL, int(ip.Length)-4*int(ip.IHL)
	case *layers.IPv6:
		src, _ = netip.AddrFromSlice(ip.SrcIP)
		dst, _ = netip.AddrFromSlice(ip.DstIP)
		d.ttl, total = ip.HopLimit, int(ip.Length)
	default:
		return false
	}
	d.src, d.dst = netip.AddrPortFrom(src, uint16(t.SrcPort)), netip.AddrPortFrom(dst, uint16(t.DstPort))
	d.seq, d.ack, d.hasACK, d.window = t.Seq, t.Ack, t.ACK, t.Window
	d.length = max(total-4*int(t.DataOffset), 0)
	var flags []string
	for _, f := range []struct {
		on   bool
		name string
	}{{t.SYN, "SYN"}, {t.FIN, "FIN"}, {t.RST, "RST"}, {t.PSH, "PSH"}, {t.ACK, "ACK"}} {
		if f.on {
			flags = append(flags, f.name)
		}
	}
	d.flags = strings.Join(flags, " ")
	for _, o := range t.Options {
		switch {
		case o.OptionType == layers.TCPOptionKindSACK:
			for i := 0; i+4 <= len(o.OptionData); i += 4 {
				d.blocks = append(d.blocks, be32(o.OptionData[i:]))
			}
		case o.OptionType == layers.TCPOptionKindTimestamps && len(o.OptionData) >= 8:
			d.stamps, d.tsval, d.tsecr = true, be32(o.OptionData), be32(o.OptionData[4:])
		}
	}
	return true
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// translation is what a page does to segments of one direction, and the words that say so.
type translation struct {
	addSeq, addAck, addVal, addEcr uint32
	shift                          int32
	seq, ack, val, ecr, window     string // words
	source, destination            uint32 // ports; zero: the page does not say
	sourceBy, destinationBy        string
}

func translations(p *regs.PageEntry) [2]translation {
	signed := func(v uint32) int32 { return int32(v<<27) >> 27 }
	return [2]translation{
		{p.ADeltaClient, -p.ADeltaServer, p.ATimestampClient, -p.ATimestampServer, signed(p.AScaleClient),
			"page.a_delta_client", "page.a_delta_server", "page.a_timestamp_client", "page.a_timestamp_server", "page.a_scale.client",
			p.ALocalPort, 0, "page.a_local.port", ""},
		{p.ADeltaServer, -p.ADeltaClient, p.ATimestampServer, -p.ATimestampClient, signed(p.AScaleServer),
			"page.a_delta_server", "page.a_delta_client", "page.a_timestamp_server", "page.a_timestamp_client", "page.a_scale.server",
			p.PortsVip, p.PortsClient, "page.ports.vip", "page.ports.client"},
	}
}

// pair finds what the first of the segments became, among those behind it, and says whether it did.
func pair(rest []Segment, p *regs.PageEntry) bool {
	s := &rest[0]
	x := translations(p)[s.wire]
	for i := 1; i < len(rest); i++ {
		o := &rest[i]
		if o.isCard && !o.taken && o.wire != s.wire && o.flags == s.flags && o.length == s.length && o.seq == s.seq+x.addSeq && (!s.hasACK || o.ack == s.ack+x.addAck || o.ack == p.HeldBoundary) {
			o.taken = true
			s.Became = &Image{o.Frame, x.compare(&s.decoded, &o.decoded, p)}
			return true
		}
	}
	return false
}

// compare lays the fields of a segment and of what it became side by side.
func (x *translation) compare(a, b *decoded, p *regs.PageEntry) []Field {
	var list []Field
	add := func(name string, was, is any, by string, fits bool) {
		list = append(list, Field{name, fmt.Sprint(was), fmt.Sprint(is), by, fits})
	}
	number := func(name string, was, is, add32 uint32, by string) {
		add(name, fmt.Sprintf("0x%08x", was), fmt.Sprintf("0x%08x", is), by, is == was+add32)
	}
	add("ip.source", a.src.Addr(), b.src.Addr(), "", true)
	add("ip.destination", a.dst.Addr(), b.dst.Addr(), "", true)
	add("ip.ttl", a.ttl, b.ttl, "", b.ttl == a.ttl-1)
	add("tcp.source_port", a.src.Port(), b.src.Port(), x.sourceBy, x.source == 0 || b.src.Port() == uint16(x.source))
	add("tcp.destination_port", a.dst.Port(), b.dst.Port(), x.destinationBy, x.destination == 0 || b.dst.Port() == uint16(x.destination))
	number("tcp.seq", a.seq, b.seq, x.addSeq, x.seq)
	switch {
	case !a.hasACK:
	case b.ack == a.ack+x.addAck:
		number("tcp.ack", a.ack, b.ack, x.addAck, x.ack)
	default:
		number("tcp.ack", a.ack, b.ack, p.HeldBoundary-a.ack, "page.held_boundary")
	}
	window := uint32(a.window)
	if x.shift > 0 {
		window = min(window<<x.shift, 65535)
	} else {
		window >>= -x.shift
	}
	add("tcp.window", a.window, b.window, x.window, uint32(b.window) == window || b.ack != a.ack+x.addAck)
	for i := range min(len(a.blocks), len(b.blocks)) {
		number(fmt.Sprintf("tcp.sack[%d]", i), a.blocks[i], b.blocks[i], x.addAck, x.ack)
	}
	if a.stamps && b.stamps {
		number("tcp.tsval", a.tsval, b.tsval, x.addVal, x.val)
		number("tcp.tsecr", a.tsecr, b.tsecr, x.addEcr, x.ecr)
	}
	return list
}

// TraceText writes segments for people.
func TraceText(w io.Writer, list []Segment) {
	fmt.Fprintf(w, "\nsegments, from both captures:\n")
	for i := range list {
		s := &list[i]
		fmt.Fprintf(w, "  %.3f ms, %s wire %d, from the %s: %s\n", s.AtMS, s.Wire, s.Frame, s.From, s.Text)
		if s.Became == nil {
			fmt.Fprintf(w, "    %s\n", s.Note)
			continue
		}
		fmt.Fprintf(w, "    became %s wire %d\n", [...]string{"server", "client"}[s.wire], s.Became.Frame)
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, f := range s.Became.Fields {
			by := f.By
			if !f.Fits {
				by = strings.TrimSpace(by + " DIFFERS")
			}
			fmt.Fprintln(t, strings.TrimRight(fmt.Sprintf("      %s\t%s → %s\t%s", f.Name, f.Was, f.Is, by), "\t"))
		}
		t.Flush()
	}
}
