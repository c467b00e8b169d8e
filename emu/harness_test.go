package emu_test

import (
	"encoding/binary"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

var (
	clientMAC = [6]byte{0x02, 0, 0, 0, 1, 1} // of the card's client port
	serverMAC = [6]byte{0x02, 0, 0, 0, 1, 2} // of the card's server port
	peerMAC   = [6]byte{0x02, 0, 0, 0, 2, 1}
)

func small() emu.Geometry {
	return emu.Geometry{Pages: 1024, Heads: 64, CamClientWords: 4096, CamServerWords: 8192, Listeners: 16, Services: 16, Groups: 16, Servers: 16,
		NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 256, Slots: 16, LocalPorts: 4096}
}

// bench is a card between two memory ports. near[i] is port i, far[i] its far end.
type bench struct {
	testing.TB
	card *emu.Card
	near [2]*port.Mem
	far  [2]*port.Mem
	now  time.Duration

	isn, serverISN uint32 // of the connection that splice made
	buffers        []frame.Frame
}

func newBench(t testing.TB, cfg emu.Config, mem port.MemConfig) *bench {
	t.Helper()
	b := &bench{TB: t}
	for i, mac := range [][6]byte{clientMAC, serverMAC} {
		mem.MACs = [2][6]byte{mac, peerMAC}
		b.near[i], b.far[i] = port.Pair(mem)
	}
	if cfg.Geometry == (emu.Geometry{}) {
		cfg.Geometry = small()
	}
	cfg.Client, cfg.Server = b.near[0], b.near[1]
	c, err := emu.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	b.card = c
	return b
}

func (b *bench) step() bool {
	b.now += time.Millisecond
	return b.card.Step(b.now)
}

// settle steps until nothing is left to do.
func (b *bench) settle() {
	for range 10_000 {
		if !b.step() {
			return
		}
	}
	b.Fatal("the card does not come to rest")
}

func (b *bench) load(r regs.Reg) uint32 {
	b.Helper()
	var p [4]byte
	if err := b.card.ReadRegion(device.Bar0, uint64(r), p[:]); err != nil {
		b.Fatal(err)
	}
	return binary.LittleEndian.Uint32(p[:])
}

func (b *bench) load64(r regs.Reg) uint64 { return uint64(b.load(r)) | uint64(b.load(r+4))<<32 }

func (b *bench) store(r regs.Reg, v uint32) {
	b.Helper()
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], v)
	if err := b.card.WriteRegion(device.Bar0, uint64(r), p[:]); err != nil {
		b.Fatal(err)
	}
}

// want compares a register, or a counter's low word, with a value.
func (b *bench) want(r regs.Reg, v uint32) {
	b.Helper()
	if got := b.load(r); got != v {
		b.Errorf("%s = %#x, want %#x", r.Name(), got, v)
	}
}

func portReg(r regs.Reg, i int) regs.Reg { return r.At(i, regs.PortStride) }

// entry stores a memory entry through BAR2.
func (b *bench) entry(memory, bank, index int, e interface{ Encode([]uint32) }) {
	b.Helper()
	m := &regs.Memories[memory]
	words := make([]uint32, m.EntryBytes/4)
	e.Encode(words)
	p := make([]byte, m.EntryBytes)
	for i, w := range words {
		binary.LittleEndian.PutUint32(p[4*i:], w)
	}
	if err := b.card.WriteRegion(device.Bar2, m.At(uint32(bank), uint32(index)), p); err != nil {
		b.Fatal(err)
	}
}

const (
	vipAddress    = 0xc612_0050 // 198.18.0.80
	clientAddress = 0xc612_0064
	serverAddress = 0xc612_010b
)

// serve enables the card and configures one service on port 80 of a VIP with one server.
func (b *bench) serve() {
	b.Helper()
	for i := range 2 {
		b.store(portReg(regs.PortControl, i), regs.PortControlEnableMask)
	}
	b.store(regs.AmuControl, regs.AmuControlEnableMask)
	b.entry(regs.MemVip, 0, 0, &regs.AddressEntry{ControlValid: 1, ControlKind: regs.KindIpv4, Address: [4]uint32{vipAddress}})
	b.entry(regs.MemListener, 0, 0, &regs.ListenerEntry{ControlValid: 1, ControlProtocol: 6, ControlPort: 80})
	b.entry(regs.MemService, 0, 0, &regs.ServiceEntry{ControlValid: 1, ControlHasDefault: 1, PromiseMssIpv4: 1460, PromiseMssIpv6: 1440})
	b.entry(regs.MemGroup, 0, 0, &regs.GroupEntry{ControlValid: 1})
	b.entry(regs.MemGroupState, 0, 0, &regs.GroupStateEntry{SelectorCountA: 1})
	b.entry(regs.MemSlot, 0, 0, &regs.SlotEntry{SlotValid: 1})
	b.entry(regs.MemServer, 0, 0, &regs.ServerEntry{ControlValid: 1, ControlKind: regs.KindIpv4, ControlProtocol: 6, ControlPort: 8080, Address: [4]uint32{serverAddress}})
	b.entry(regs.MemNextHop, 0, 0, &regs.NextHopEntry{ControlValid: 1, ControlResolved: 1, ControlPort: 1, MacLo: binary.BigEndian.Uint32(peerMAC[2:]), MacHiAddress: uint32(binary.BigEndian.Uint16(peerMAC[:]))})
}

// segment is a TCP segment over IPv4.
type segment struct {
	dst          [6]byte // MAC
	from, to     uint32
	sport, dport uint16
	seq, ack     uint32
	flags        byte
	mss          uint16 // option; zero: none
	payload      []byte
}

const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

// build lays a segment out; partial leaves the TCP checksum to the receiver.
func (s *segment) build(partial bool) []byte {
	header := 20
	if s.mss != 0 {
		header = 24
	}
	b := make([]byte, 34+header+len(s.payload))
	copy(b, s.dst[:])
	copy(b[6:], peerMAC[:])
	b[12] = 8
	ip, t := b[14:], b[34:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint32(ip[12:], s.from)
	binary.BigEndian.PutUint32(ip[16:], s.to)
	binary.BigEndian.PutUint16(ip[10:], ^frame.Fold(frame.Sum(ip[:20], 0)))
	binary.BigEndian.PutUint16(t, s.sport)
	binary.BigEndian.PutUint16(t[2:], s.dport)
	binary.BigEndian.PutUint32(t[4:], s.seq)
	binary.BigEndian.PutUint32(t[8:], s.ack)
	t[12], t[13] = byte(header)<<2, s.flags
	binary.BigEndian.PutUint16(t[14:], 65535)
	if s.mss != 0 {
		t[20], t[21] = 2, 4
		binary.BigEndian.PutUint16(t[22:], s.mss)
	}
	copy(t[header:], s.payload)
	pseudo := frame.Pseudo4(ip, 6, len(t))
	if partial {
		binary.BigEndian.PutUint16(t[16:], frame.Fold(pseudo))
		return b
	}
	binary.BigEndian.PutUint16(t[16:], ^frame.Fold(frame.Sum(t, pseudo)))
	return b
}

// syn is a client's SYN to the VIP.
func syn(sport uint16, seq uint32) *segment {
	return &segment{dst: clientMAC, from: clientAddress, to: vipAddress, sport: sport, dport: 80, seq: seq, flags: flagSYN}
}

// sent is a frame that the card transmitted.
type sent struct {
	port    int
	bytes   []byte
	offload frame.Offload
}

// drain takes what the card has transmitted.
func (b *bench) drain() []sent {
	var out []sent
	if b.buffers == nil {
		b.buffers = make([]frame.Frame, 64)
		for i := range b.buffers {
			b.buffers[i].Buf = make([]byte, frame.Headroom+frame.MaxBytes)
		}
	}
	fs := b.buffers
	for p, far := range b.far {
		for {
			for i := range fs {
				fs[i].Start = frame.Headroom
			}
			n := far.Receive(fs)
			for i := range fs[:n] {
				out = append(out, sent{p, append([]byte{}, fs[i].Bytes()...), fs[i].Offload})
			}
			if n == 0 {
				break
			}
		}
	}
	return out
}

// send lets a frame arrive at a port of the card.
func (b *bench) send(p int, raw []byte, o frame.Offload) {
	b.Helper()
	f := frame.Frame{Buf: raw, End: uint32(len(raw)), Offload: o}
	if b.far[p].Transmit([]*frame.Frame{&f}) != 1 {
		b.Fatal("the queue into the card is full")
	}
}

const request = "GET /photos/cat.jpg HTTP/1.1\r\nHost: img.example\r\n\r\n"

const clientISN = 77

// clientNext is the client's next sequence number after splice.
func (b *bench) clientNext() uint32 { return clientISN + 1 + uint32(len(request)) }

// splice takes the connection of port 1000 through both handshakes and the request.
func (b *bench) splice(t *testing.T) {
	t.Helper()
	b.serve()
	one := func(port int) []byte {
		t.Helper()
		b.settle()
		for _, f := range b.drain() {
			if f.port == port {
				return f.bytes[34:]
			}
		}
		t.Fatalf("nothing sent to port %d", port)
		return nil
	}
	client := syn(1000, clientISN)
	b.send(0, client.build(false), noOffload)
	b.isn = binary.BigEndian.Uint32(one(0)[4:])
	client.seq, client.ack, client.flags = clientISN+1, b.isn+1, flagACK
	b.send(0, client.build(false), noOffload)
	client.payload = []byte(request)
	b.send(0, client.build(false), noOffload)
	one(1)
	b.serverISN = 5_000_000
	server := segment{dst: serverMAC, from: serverAddress, to: clientAddress, sport: 8080, dport: 1000, seq: b.serverISN, ack: clientISN + 1, flags: flagSYN | flagACK, mss: 1460}
	b.send(1, server.build(false), noOffload)
	one(1)
	server.seq, server.ack, server.flags, server.mss = b.serverISN+1, b.clientNext(), flagACK, 0
	b.send(1, server.build(false), noOffload)
	one(0)
}
