package datapath

import (
	"time"

	"splicenic/emu/cam"
	"splicenic/emu/frame"
	"splicenic/emu/hostif"
	"splicenic/emu/regfile"
	"splicenic/emu/ssram"
	"splicenic/emu/urltable"
	"splicenic/regs"
)

// BatchMax is the most frames Process takes at once.
const BatchMax = 64

// Core is the pipeline. It owns no state that outlives a batch; see the package comment.
type Core struct {
	r    *regfile.File
	m    *ssram.Memory
	cams [sides]*cam.CAM
	host *hostif.Interface

	tick   uint32
	asked  injected // by the host, of the frame at hand
	oneArm bool
	cut    func(*frame.Frame, *regs.ExceptionEntry) (taken bool)
	spill  func(*Output)
	batch  [BatchMax]packet

	// Derived from the memories; Reindex rebuilds them.
	vips      index
	servers   index
	locals    index
	lends     bool // there are local addresses
	returns   bool // some server behind a tunnel answers through the card
	listeners [2]index
	live      []uint64 // bit n: page n is valid
	anyPorts  bool     // some server takes every port
	twins     bool     // some servers have one address, port and protocol

	// Counted during a batch, published at its end.
	transmitted [sides]uint64
	carries     uint64
	sackBlocks  uint64
	timestamps  uint64

	// Derived from the defence's key and epoch; RekeyDefence computes them.
	secrets [2][2]uint64 // of the epoch in force and of the one before

	nowhere page
	draft   page // of a connection that no page is taken for yet
	request urltable.Request
	hello   urltable.Hello
	given   regs.ExceptionEntry  // of the exception at hand
	answer  [regs.HeadBytes]byte // on its way into a head buffer
	touched uint32               // keeps the loads of the touch columns from being optimised away
}

// New joins the pipeline to its memories and registers. The caller owns them all and calls ResetDataPath, or Reindex
// after a restore, before the first frame.
func New(r *regfile.File, m *ssram.Memory, client, server *cam.CAM, h *hostif.Interface) *Core {
	g := &m.Geometry
	return &Core{
		r: r, m: m, cams: [sides]*cam.CAM{client, server}, host: h,
		vips: newIndex(g.Vips), servers: newIndex(g.Servers), locals: newIndex(g.LocalAddresses), listeners: [2]index{newIndex(g.Listeners), newIndex(g.Listeners)},
		live: make([]uint64, (g.Pages+63)/64),
	}
}

// SetPunt gives the card the frames for the host that carry an offload header: it knows how to cut them into wire
// frames. Without it they go as they are.
func (c *Core) SetPunt(cut func(*frame.Frame, *regs.ExceptionEntry) (taken bool)) { c.cut = cut }

// SetSpill gives the card what an output holds before one packet becomes more frames than it has room for. The card sends
// them and empties it. Without it what finds no room is dropped and counted.
func (c *Core) SetSpill(spill func(*Output)) { c.spill = spill }

// SetOneArmed says that both subnets are behind the client port.
func (c *Core) SetOneArmed(on bool) { c.oneArm = on }

// ResetDataPath brings the lists to their state after power-on: every address free, in order, every head buffer free.
// The memories have been cleared by the caller.
func (c *Core) ResetDataPath() {
	for n := range c.m.Geometry.Pages {
		c.m.AddressList[n] = n
	}
	c.r.Set(regs.AmuListHead, 0)
	c.r.Set(regs.AmuListTail, 0)
	c.r.Set(regs.AmuFree, c.m.Geometry.Pages)
	for i := range c.m.Geometry.Heads {
		c.m.HeadList[c.m.Geometry.Heads-1-i] = i
	}
	c.r.Set(regs.HeadFree, c.m.Geometry.Heads)
	c.r.Set(regs.HeadLowest, c.m.Geometry.Heads)
	c.Reindex()
	c.m.Dirty = 0
}

// Advance sets the card's time; now counts from reset and never goes back.
func (c *Core) Advance(now time.Duration) {
	us := uint64(now / time.Microsecond)
	if us < c.r.Get64(regs.TimerNow) {
		us = c.r.Get64(regs.TimerNow)
	}
	c.r.Set64(regs.TimerNow, us)
	c.tick = uint32(us / 1000)
	if before := c.r.Get(regs.TimerTick); before != c.tick {
		c.r.Set(regs.TimerTick, c.tick)
		c.defend()
	}
}

// Process takes one batch of frames of a port through the pipeline; of more than BatchMax frames only the first
// BatchMax are looked at. Frames to be transmitted are appended to out; they point into fs or into out's own buffers
// and are valid until either is reused.
func (c *Core) Process(port int, fs []frame.Frame, out *Output) {
	c.Sync()
	ps := c.batch[:min(len(fs), BatchMax)]
	for i := range ps {
		c.parse(port, &fs[i], &ps[i])
		if ps[i].class >= classTCP {
			c.keys(&ps[i])
		}
	}
	c.touchCAM(ps)
	version := c.lookup(ps)
	c.touchPages(ps)
	for i := range ps {
		p := &ps[i]
		switch p.class {
		case classPunted:
			c.exception(p, 0)
		case classTCP, classUDP:
			if v := c.camVersion(); v != version {
				c.look(p)
			}
			c.act(p, out)
		}
	}
	c.publish(ps)
}

// keys finds the indexes that take part in the keys and hashes the keys.
func (c *Core) keys(p *packet) {
	kind := uint32(p.kind)
	protocol := p.protocol()
	control := p.keyControl()
	p.vip = c.findVIP(kind, &p.dst)
	if p.vip >= 0 {
		p.key[ClientSide] = cam.Key{Control: control, Ports: p.sport | p.dport<<16, Index: uint32(p.vip), Addr: p.src}
		p.hash[ClientSide] = c.cams[ClientSide].Hash(&p.key[ClientSide])
	}
	p.server = c.findServer(kind, protocol, &p.src, p.sport)
	if p.server >= 0 {
		c.answerKey(p)
	} else if c.returns {
		if p.server = c.findVIP(kind, &p.src); p.server >= 0 { // it answers from the VIP
			p.key[ServerSide] = cam.Key{Control: control, Ports: p.dport | p.sport<<16, Index: uint32(p.server) | regs.CamWordIndexVipMask, Addr: p.dst}
			p.hash[ServerSide] = c.cams[ServerSide].Hash(&p.key[ServerSide])
		}
	}
	if p.class == classUDP && p.vip < 0 && p.server < 0 {
		c.punt(p, reasonProtocol)
	}
}

// keyControl is what the keys of a packet have in common: family, protocol and VLAN.
func (p *packet) keyControl() uint32 {
	return regs.CamWordControlValidMask | uint32(p.kind)<<regs.CamWordControlKindShift | p.protocol()<<regs.CamWordControlProtocolShift | p.vlan<<regs.CamWordControlVlanShift
}

// answerKey is the server-side key of what p.server sends from an address of its own.
func (c *Core) answerKey(p *packet) {
	k := &p.key[ServerSide]
	*k = cam.Key{Control: p.keyControl(), Ports: p.dport | c.anyPort(uint32(p.server), p.sport)<<16, Index: uint32(p.server), Addr: p.dst}
	if i := c.findLocal(uint32(p.kind), &p.dst); i >= 0 { // it answers to an address of the card's
		k.Control, k.Addr, p.local = k.Control&^regs.CamWordControlKindMask|regs.CamWordControlKindLocal<<regs.CamWordControlKindShift, address{uint32(i)}, true
	}
	p.hash[ServerSide] = c.cams[ServerSide].Hash(k)
}

func (c *Core) touchCAM(ps []packet) {
	var t uint32
	for i := range ps {
		p := &ps[i]
		if p.class < classTCP {
			continue
		}
		if p.vip >= 0 {
			t += c.cams[ClientSide].Touch(p.hash[ClientSide])
			if p.segment == SYN || p.segment == Datagram {
				t += c.cams[ClientSide].TouchOther(p.hash[ClientSide])
			}
		} else if p.server >= 0 {
			t += c.cams[ServerSide].Touch(p.hash[ServerSide])
		}
	}
	c.touched += t
}

func (c *Core) lookup(ps []packet) (version uint32) {
	for i := range ps {
		if ps[i].class >= classTCP {
			c.look(&ps[i])
		}
	}
	return c.camVersion()
}

// look finds the connection of a segment. A frame that hits both CAMs is the client side's.
func (c *Core) look(p *packet) {
	p.hit = false
	if p.vip >= 0 {
		if p.handle, p.legB, p.hit = c.cams[ClientSide].Lookup(&p.key[ClientSide], p.hash[ClientSide]); p.hit {
			p.side = ClientSide
			return
		}
	}
	if p.server >= 0 {
		if p.handle, p.legB, p.hit = c.cams[ServerSide].Lookup(&p.key[ServerSide], p.hash[ServerSide]); p.hit {
			p.side = ServerSide
			return
		}
		if (c.twins || c.anyPorts) && c.lookTwins(p) {
			return
		}
	}
	p.side = ClientSide
	if p.vip < 0 {
		p.side = ServerSide
	}
}

// lookTwins looks for the connection of a segment with the servers that its own is the same to.
func (c *Core) lookTwins(p *packet) bool {
	first, key, hash, local := p.server, p.key[ServerSide], p.hash[ServerSide], p.local
	for tried := uint32(1); tried < maxTwins; tried++ {
		if p.server = c.anotherServer(p, tried); p.server < 0 {
			break
		}
		c.answerKey(p)
		if p.handle, p.legB, p.hit = c.cams[ServerSide].Lookup(&p.key[ServerSide], p.hash[ServerSide]); p.hit {
			p.side = ServerSide
			return true
		}
	}
	p.server, p.key[ServerSide], p.hash[ServerSide], p.local = first, key, hash, local
	return false
}

func (c *Core) camVersion() uint32 {
	return c.cams[ClientSide].Version() + c.cams[ServerSide].Version()
}

// touchPages loads one word of each line that a translated packet needs.
func (c *Core) touchPages(ps []packet) {
	var t uint32
	for i := range ps {
		p := &ps[i]
		if p.class >= classTCP && p.hit {
			w := c.page(p.handle & handleMask)
			t += w[regs.PageControl] + w[regs.PageAIndex]
		}
	}
	c.touched += t
}

// handleMask selects n of a handle.
const handleMask = regs.CamWordHandleNMask

// act carries out the state table's row for one segment.
func (c *Core) act(p *packet, out *Output) {
	var w *page
	state := Free
	if p.hit {
		w = c.page(p.handle & handleMask)
		state = State(regs.PageControlState(w[regs.PageControl]))
		if regs.PageControlGeneration(w[regs.PageControl]) != p.handle>>20 || regs.PageControlValid(w[regs.PageControl]) == 0 {
			// The CAM entry outlived its page: only possible when the host stored into the window.
			p.hit, w, state = false, nil, Free
		} else if w[regs.PageClientLink]&regs.PageClientLinkPassedMask != 0 {
			p.passed, state = true, passedStates[state]
		}
	}
	if !p.hit && p.vip >= 0 {
		state = c.guard(p)
	}
	kind := p.segment
	if refined[state][p.side]>>kind&1 != 0 {
		kind = c.refine(p, w, state)
	}
	row := &table[state][p.side][kind]
	if p.hit && replies(w) && row.Verdict != VerdictReopen {
		c.replied(p, w, out)
		return
	}
	switch row.Verdict {
	case VerdictTranslate, VerdictTranslateFIN, VerdictTranslateRST:
		c.forward(p, w, row.Verdict, out)
	case VerdictException:
		c.exception(p, p.connection())
	case VerdictOpen:
		if p.hit { // the host took a page for this key
			c.exception(p, p.connection())
			return
		}
		c.open(p, out)
	case VerdictSynAgain:
		c.synAgain(p, w, out)
	case VerdictEstablish:
		c.establish(p, w, out)
	case VerdictProbe:
		c.probe(p, w, out)
	case VerdictHold:
		c.hold(p, w, out)
	case VerdictAppend:
		c.appendHeld(p, w, out)
	case VerdictClientGone:
		c.clientGone(p, w, out)
	case VerdictClientReset:
		c.clientReset(p, w, out)
	case VerdictChallenge:
		c.challenge(p, w, row.Counter, out)
	case VerdictServerSynAck:
		c.serverSynAck(p, w, out)
	case VerdictServerRefused:
		c.serverRefused(p, w, out)
	case VerdictServerStale:
		c.serverStale(p, w, out)
	case VerdictServerAckAgain:
		c.serverAckAgain(p, w, row.Counter, out)
	case VerdictReopen:
		c.reopen(p, w, out)
	case VerdictCookie:
		c.cookie(p, out)
	case VerdictProve:
		c.prove(p, out)
	case VerdictPass:
		c.pass(p, out)
	case VerdictSloppy:
		c.sloppy(p, row.Counter, out)
	case VerdictPassSyn:
		c.passSyn(p, w, state, out)
	case VerdictPassEstablish:
		c.passEstablish(p, w, out)
	case VerdictPassSynAck:
		c.passSynAck(p, w, out)
	case VerdictPassServerSyn:
		c.passServerSyn(p, w, out)
	case VerdictPassClientSynAck:
		c.passClientSynAck(p, w, out)
	default:
		c.count(row.Counter)
	}
}

// connection is the handle of the connection a segment belongs to, zero where it has none.
func (p *packet) connection() uint32 {
	if p.hit {
		return p.handle
	}
	return 0
}

// publish adds the batch's classes and CAM results to the counters.
func (c *Core) publish(ps []packet) {
	var syn, request, ordinary, hits, misses [sides]uint64
	for i := range ps {
		p := &ps[i]
		if p.class < classTCP {
			continue
		}
		if p.hit {
			hits[p.side]++
		} else {
			misses[p.side]++
		}
		switch port := p.port & 1; {
		case p.given: // counted as an exception
		case p.request:
			request[port]++
		case p.hit:
			ordinary[port]++
		default:
			syn[port]++
		}
	}
	for i := range sides {
		c.add(regs.ParserClassSyn+regs.Reg(i)*regs.ParserStride, syn[i])
		c.add(regs.ParserClassRequest+regs.Reg(i)*regs.ParserStride, request[i])
		c.add(regs.ParserClassOrdinary+regs.Reg(i)*regs.ParserStride, ordinary[i])
		c.add(regs.CamHits+regs.Reg(i)*regs.CamStride, hits[i])
		c.add(regs.CamMisses+regs.Reg(i)*regs.CamStride, misses[i])
	}
	c.add(regs.PmuTranslatedClient, c.transmitted[ClientSide])
	c.add(regs.PmuTranslatedServer, c.transmitted[ServerSide])
	c.add(regs.PmuCarries, c.carries)
	c.add(regs.PmuSackBlocks, c.sackBlocks)
	c.add(regs.PmuTimestamps, c.timestamps)
	c.transmitted, c.carries, c.sackBlocks, c.timestamps = [sides]uint64{}, 0, 0, 0
}

func (c *Core) add(r regs.Reg, n uint64) {
	if n != 0 {
		c.r.Add64(r, n)
	}
}

func (c *Core) count(r regs.Reg) { c.r.Add64(r, 1) }

// page is the words of one SSRAM page.
type page = [regs.PageWords]uint32

// page returns a page. A number beyond the last, which only a host's stores can bring about, leads to an empty one.
func (c *Core) page(n uint32) *page {
	if n >= c.m.Geometry.Pages {
		c.nowhere = page{}
		return &c.nowhere
	}
	return (*page)(c.m.Page(n))
}

// entry returns one entry of a memory; an index beyond the last leads to entry 0, as the upper lines of an address bus
// that nothing decodes.
func entry(memory []uint32, i, words uint32) []uint32 {
	at := uint64(i) * uint64(words)
	if at >= uint64(len(memory)) {
		at = 0
	}
	return memory[at : at+uint64(words) : at+uint64(words)]
}

// exception hands a frame to the host. handle is zero where no connection is concerned.
func (c *Core) exception(p *packet, handle uint32) (taken bool) {
	p.given = true
	c.r.Add64(regs.ParserClassException+regs.Reg(p.port)*regs.ParserStride, 1)
	if p.class >= classTCP && p.reason == 0 {
		p.reason = reasonNoMatch
		if p.class == classUDP {
			p.reason = reasonProtocol
		}
	}
	counter := exceptionCounters[p.reason]
	if counter != 0 {
		c.r.Add64(counter+regs.Reg(p.port)*regs.ParserStride, 1)
	}
	e := &c.given
	*e = regs.ExceptionEntry{
		ControlType: regs.ExceptionControlTypeFrame, ControlPort: uint32(p.port), Tick: c.tick,
		HandleN: handle & handleMask, HandleGeneration: handle >> 20, ReasonReason: uint32(p.reason), ReasonSide: uint32(p.side),
	}
	if p.class == classTCP && p.vip >= 0 {
		e.ReasonMissVip = 1
	}
	if p.reason == reasonTooBig {
		e.Mtu = p.mtu
	}
	if handle != 0 {
		w := c.page(handle & handleMask)
		e.ReasonState = regs.PageControlState(w[regs.PageControl])
		e.IndexService = regs.PageIndexService(w[regs.PageIndex])
		e.IndexServer = regs.PageAIndexServer(w[regs.PageAIndex])
	}
	if p.f.Offload != (frame.Offload{}) && c.cut != nil {
		taken = c.cut(p.f, e)
	} else {
		taken = c.host.Exception(p.b, e)
	}
	p.reason = 0
	return taken
}

var exceptionCounters = [32]regs.Reg{
	reasonNotIP: regs.ParserExceptionNotIp, reasonICMP: regs.ParserExceptionIcmp, reasonFragment: regs.ParserExceptionFragment,
	reasonOption: regs.ParserExceptionOption, reasonProtocol: regs.ParserExceptionProtocol, reasonVLAN: regs.ParserExceptionVlan,
	reasonTTL: regs.ParserExceptionTtl, reasonNoMatch: regs.ParserExceptionNoMatch,
	reasonTooBig: regs.ParserExceptionTooBig,
}
