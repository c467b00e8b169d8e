package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/regs"
)

// methods are the ways in which a layer-4 service passes connections on.
var methods = []struct {
	name   string
	mode   uint32
	tunnel uint32
	both   bool // answers come by the card
}{
	{"nat", regs.ServiceControlModeNat, 0, true},
	{"fullnat", regs.ServiceControlModeFullnat, 0, true},
	{"tun_ipip", regs.ServiceControlModeTun, regs.ServerTunnelTypeIpip, false},
	{"tun_gre", regs.ServiceControlModeTun, regs.ServerTunnelTypeGre, false},
	{"tun_gue", regs.ServiceControlModeTun, regs.ServerTunnelTypeGue, false},
	{"dr", regs.ServiceControlModeDr, 0, false},
}

// localPorts is how many ports of one local address FULLNAT uses here.
const localPorts = 1 << 15

// l4 measures small frames of random flows, method by method.
func (res *Result) l4(ctx context.Context, cfg Config) error {
	res.L4Mpps, res.L4PerRead = map[string]float64{}, map[string]float64{}
	for i := range methods {
		m := &methods[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		ns, read, allocs, err := measureMethod(cfg, i)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		res.L4Mpps[m.name], res.L4PerRead[m.name] = 1e3/ns, ns/read
		res.AllocsPerL4 = max(res.AllocsPerL4, allocs)
	}
	return nil
}

// measureMethod returns the nanoseconds of a packet, and of a random read between the rounds.
func measureMethod(cfg Config, method int) (ns, read, allocs float64, err error) {
	m := &methods[method]
	cfg.Progress(fmt.Sprintf("passing connections on by %s: %d flows", m.name, cfg.Flows))
	r, err := newRig(emu.Geometry{Pages: cfg.Flows})
	if err != nil {
		return 0, 0, 0, err
	}
	defer r.close()
	if err := r.programMethod(method, cfg.Flows); err != nil {
		return 0, 0, 0, err
	}
	gens, err := r.openPassed(cfg.Flows, m.both)
	if err != nil {
		return 0, 0, 0, err
	}
	var packets, reads []float64
	for range cfg.Rounds {
		before, start := mallocs(), processTime()
		if err := r.passMethod(gens, cfg.Frames, m.both); err != nil {
			return 0, 0, 0, err
		}
		packets = append(packets, float64((processTime()-start).Nanoseconds())/float64(cfg.Frames))
		allocs = max(allocs, perRun(mallocs()-before, cfg.Frames))
		read, err := randomRead(cfg.Loads)
		if err != nil {
			return 0, 0, 0, err
		}
		reads = append(reads, read)
	}
	return median(packets), median(reads), allocs, nil
}

// passMethod sends n frames, half from each side where answers come by, and sees all of them come out of the other.
func (r *rig) passMethod(gens [2]*generator, n int, both bool) error {
	if both {
		return r.pass(gens, n)
	}
	gens[0].left, gens[1].left, gens[1].received = n, 0, 0
	for gens[0].left > 0 {
		r.step()
	}
	r.step()
	if gens[1].received != uint64(n) {
		return fmt.Errorf("%d frames went in, %d came out", n, gens[1].received)
	}
	return nil
}

// programMethod makes the rig's service one that passes connections on.
func (r *rig) programMethod(method int, flows uint32) error {
	m := &methods[method]
	write := func(memory int, bank, index uint32, values ...encoder) error {
		info := &regs.Memories[memory]
		n := int(info.EntryBytes / 4)
		words := make([]uint32, n*len(values))
		for i, v := range values {
			v.Encode(words[i*n : (i+1)*n])
		}
		return r.drv.WriteTable(context.Background(), info.At(bank, index), words)
	}
	server := regs.ServerEntry{ControlValid: 1, ControlKind: regs.KindIpv4, ControlProtocol: 6, ControlPort: uint32(backend.Port()),
		ControlMethod: m.mode - regs.ServiceControlModeNat, TunnelType: m.tunnel, TunnelPort: 6080, Address: number(backend.Addr())}
	if !m.both {
		server.TunnelAnyPort = 1
	}
	err := errors.Join(
		write(regs.MemService, 1, 0, &regs.ServiceEntry{ControlValid: 1, ControlHasDefault: 1, ControlMode: m.mode, ControlProtocol: regs.ServiceControlProtocolTcp}),
		write(regs.MemServer, 0, 0, &server))
	addresses := (flows + localPorts - 1) / localPorts
	local := netip.MustParseAddr("198.19.2.1")
	for a := range addresses {
		err = errors.Join(err, write(regs.MemLocalAddress, 0, a, &regs.AddressEntry{ControlValid: 1, ControlKind: regs.KindIpv4, Address: number(local)}))
		local = local.Next()
	}
	if m.mode != regs.ServiceControlModeFullnat {
		return err
	}
	for a := range addresses {
		entries := make([]encoder, localPorts)
		for i := range entries {
			entries[i] = &regs.LocalPortEntry{NumberPort: 1024 + uint32(i), NumberLocalAddress: a}
		}
		err = errors.Join(err, write(regs.MemLocalPort, 0, a*localPorts, entries...))
	}
	n := addresses * localPorts
	return errors.Join(err, write(regs.MemServerState, 0, 0, &regs.ServerStateEntry{PortsSize: n, PortsFree: n}))
}

// A hand is the far end of a wire while connections are opened: it sends what it is given and keeps what it gets.
type hand struct {
	*generator
	queue [][60]byte
	got   [][60]byte
}

func (h *hand) Receive(fs []frame.Frame) int {
	n := min(len(fs), len(h.queue))
	for i := range fs[:n] {
		f := &fs[i]
		copy(f.Buf[f.Start:], h.queue[i][:])
		f.End, f.Offload = f.Start+60, frame.Offload{}
	}
	h.queue = h.queue[n:]
	return n
}

func (h *hand) Transmit(fs []*frame.Frame) int {
	for _, f := range fs {
		var b [60]byte
		copy(b[:], f.Bytes())
		h.got = append(h.got, b)
	}
	return len(fs)
}

// exchange sends frames from one hand and waits for as many at the other.
func (r *rig) exchange(from, to *hand, frames [][60]byte) error {
	from.queue, to.got = frames, to.got[:0]
	for idle := 0; len(to.got) < len(frames) && idle < 3; {
		if idle++; r.step() {
			idle = 0
		}
	}
	if len(to.got) != len(frames) {
		return fmt.Errorf("%d segments of handshakes went in, %d came out", len(frames), len(to.got))
	}
	return nil
}

// openPassed sets up n connections whose server answers by the card, or past it, and returns what goes on sending for them.
func (r *rig) openPassed(n uint32, both bool) (gens [2]*generator, err error) {
	const chunk = 256
	fs := &flows{n: n, server: make([]uint32, n), seen: make([]seen, n)}
	for f := range n {
		fs.server[f] = isn(f, 1) + 1
	}
	gens = [2]*generator{newGenerator(fs, 0), newGenerator(fs, 1)}
	hands := [2]*hand{{generator: gens[0]}, {generator: gens[1]}}
	r.wires[0].Port, r.wires[1].Port = hands[0], hands[1]
	for first := uint32(0); first < n; first += chunk {
		last := min(first+chunk, n)
		syns, answers, acks := make([][60]byte, 0, chunk), make([][60]byte, 0, chunk), make([][60]byte, 0, chunk)
		for f := first; f < last; f++ {
			syns = append(syns, gens[0].segment(f, 0x02, isn(f, 0), 0))
			acks = append(acks, gens[0].segment(f, 0x10, isn(f, 0)+1, fs.server[f]))
		}
		if err := r.exchange(hands[0], hands[1], syns); err != nil {
			return gens, err
		}
		if both {
			for f := first; f < last; f++ {
				b := &hands[1].got[f-first]
				fs.seen[f] = seen{address: binary.BigEndian.Uint32(b[26:]), port: binary.BigEndian.Uint16(b[34:]), shift: binary.BigEndian.Uint32(b[38:]) - isn(f, 0)}
				answers = append(answers, gens[1].segment(f, 0x12, isn(f, 1), isn(f, 0)+1))
			}
			if err := r.exchange(hands[1], hands[0], answers); err != nil {
				return gens, err
			}
		}
		if err := r.exchange(hands[0], hands[1], acks); err != nil {
			return gens, err
		}
	}
	r.wires[0].Port, r.wires[1].Port = gens[0], gens[1]
	return gens, nil
}

// segment is one without payload of flow f, with numbers as the client knows them.
func (g *generator) segment(f uint32, flags byte, seq, ack uint32) (b [60]byte) {
	g.fill(&b, f)
	if g.side == 1 {
		ack += g.seen[f].shift
	}
	clear(b[54:])
	b[17] = 40 // bytes of the packet; padding follows
	b[47] = flags
	binary.BigEndian.PutUint32(b[38:], seq)
	binary.BigEndian.PutUint32(b[42:], ack)
	binary.BigEndian.PutUint16(b[24:], 0)
	binary.BigEndian.PutUint16(b[24:], ^frame.Fold(frame.Sum(b[14:34], 0)))
	binary.BigEndian.PutUint16(b[50:], 0)
	binary.BigEndian.PutUint16(b[50:], ^frame.Fold(frame.Sum(b[34:54], frame.Pseudo4(b[14:], 6, 20))))
	return b
}
