package datapath

import (
	"fmt"
	"testing"
	"time"

	"splicenic/regs"
)

// TestStaleHandle: a command whose generation is not the page's does nothing, whatever its verb.
func TestStaleHandle(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	old := b.pageOf(t)
	generation := handleOf(old, b.c.page(old)) >> 20
	b.kill(t, c)
	// The page comes round again for another connection.
	for b.c.page(old)[regs.PageControl]&regs.PageControlValidMask == 0 {
		b.waiting(t, plainOptions)
	}
	b.events()
	for verb := uint32(regs.CommandControlTypeArmAndSend); verb <= regs.CommandControlTypeCamInsert; verb++ {
		before := b.snapshot()
		stale := b.r.Get64(regs.AmuStaleHandle)
		done := b.command(regs.CommandEntry{ControlType: verb, HandleN: old, HandleGeneration: generation, FlagsToClient: 1, KeyControlKind: kindIPv4, KeyPortsPort: 9})
		if done.ControlStatus != statusStale || b.r.Get64(regs.AmuStaleHandle) != stale+1 || len(b.out.Ports[0])+len(b.out.Ports[1]) != 0 {
			t.Errorf("verb %d: status %d, stale_handle %d", verb, done.ControlStatus, b.r.Get64(regs.AmuStaleHandle)-stale)
		}
		for _, name := range before.diff(b.snapshot()) {
			if name != "amu.commands" && name != "amu.stale_handle" {
				t.Errorf("verb %d: a stale handle changed %s", verb, name)
			}
		}
	}
	for _, n := range []uint32{b.m.Geometry.Pages, handleMask} {
		if done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeFree, HandleN: n, HandleGeneration: 1}); done.ControlStatus != statusStale {
			t.Errorf("page %d: status %d, want stale", n, done.ControlStatus)
		}
	}
	b.check(t)
}

// TestCommandReset ends connections in every state and tells the ends that the command names.
func TestCommandReset(t *testing.T) {
	for state := SynRcvd; state <= Quarantine; state++ {
		for flags := range uint32(4) {
			b, c := stage(t, state, ClientSide)
			b.events()
			n := b.pageOf(t)
			done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeReset, HandleN: n, HandleGeneration: handleOf(n, b.c.page(n)) >> 20, FlagsToClient: flags & 1, FlagsToServer: flags >> 1})
			out := b.drain()
			if state == Quarantine {
				if done.ControlStatus != statusState || len(out[0])+len(out[1]) != 0 {
					t.Errorf("quarantine: status %d, %v", done.ControlStatus, out)
				}
				continue
			}
			if done.ControlStatus != statusOK {
				t.Fatalf("state %d: status %d", state, done.ControlStatus)
			}
			toServer := flags&2 != 0 && state >= ServerSyn
			if (len(out[0]) == 1) != (flags&1 != 0) || (len(out[1]) == 1) != toServer {
				t.Errorf("state %d flags %d: %v", state, flags, out)
			}
			if len(out[0]) == 1 {
				if s := out[0][0]; s.flags&flagRST == 0 || s.seq != c.cack {
					t.Errorf("state %d: to the client %v, want RST with seq %#x", state, s, c.cack)
				}
			}
			if len(out[1]) == 1 {
				if s := out[1][0]; s.flags != flagRST || s.seq != c.sack {
					t.Errorf("state %d: to the server %v, want RST with seq %#x", state, s, c.sack)
				}
			}
			es := b.events()
			if len(es) != 1 || es[0].ControlType != regs.EventControlTypeClosed || es[0].ReasonReason != reasonHost || es[0].HandleN != n {
				t.Errorf("state %d: events %+v", state, es)
			}
			b.check(t)
			b.allFree(t)
		}
	}
}

// TestCommandAllocate: the host's page is its own until it frees it; frames that hit its key are the host's.
func TestCommandAllocate(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{})
	b.attach()
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 40001}
	n := b.hostPage(t, c)
	generation := handleOf(n, b.c.page(n)) >> 20
	for _, flags := range []uint8{flagSYN, flagACK, flagRST, flagFIN | flagACK} {
		if out := b.push(0, c.client(flags, "")); len(out[0])+len(out[1]) != 0 {
			t.Errorf("flags %#x draw %v", flags, out)
		}
		g := b.exceptions()
		if len(g) != 1 || g[0].HandleN != n || g[0].HandleGeneration != generation || g[0].ReasonReason != reasonNoMatch {
			t.Errorf("flags %#x: exceptions %+v, want one with the host's handle", flags, g)
		}
	}
	b.wait(2 * time.Second)
	if got := b.r.Get(regs.AmuLive); got != 1 {
		t.Errorf("live: got %d, want 1: the scan takes no page of the host's", got)
	}
	key := regs.CommandEntry{ControlType: regs.CommandControlTypeCamLookup, KeyControlKind: kindIPv4, KeyControlProtocol: protocolTCP, KeyPortsPort: 40001, KeyPortsDestination: 80, Value: words(world4.client)[0]}
	if done := b.command(key); done.ControlStatus != statusOK || done.HandleN != n || done.Result[1] != handleOf(n, b.c.page(n)) {
		t.Errorf("cam_lookup: %+v", done)
	}
	insert := key
	insert.ControlType, insert.HandleN, insert.HandleGeneration = regs.CommandControlTypeCamInsert, n, generation
	if done := b.command(insert); done.ControlStatus != statusKeyExists {
		t.Errorf("cam_insert of a key that exists: status %d", done.ControlStatus)
	}
	key.ControlType = regs.CommandControlTypeCamErase
	for _, want := range []uint32{statusOK, statusNotFound} {
		if done := b.command(key); done.ControlStatus != want {
			t.Errorf("cam_erase: status %d, want %d", done.ControlStatus, want)
		}
	}
	if done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypeFree, HandleN: n, HandleGeneration: generation}); done.ControlStatus != statusOK {
		t.Errorf("free: status %d", done.ControlStatus)
	}
	b.check(t)
	b.allFree(t)
}

// TestCommandIPv6Key reads the address of an IPv6 key from host memory.
func TestCommandIPv6Key(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world6, 0, regs.ServiceEntry{})
	ram := b.attach()
	b.now = time.Second
	c := &conn{b: b, w: world6, port: 40001, cseq: 5}
	c.reach(t, SynRcvd)
	n := b.pageOf(t)
	for i, w := range words(world6.client) {
		for j := range 4 {
			ram[0x1000+4*i+j] = byte(w >> (8 * j))
		}
	}
	key := regs.CommandEntry{ControlType: regs.CommandControlTypeCamLookup, KeyControlKind: kindIPv6, KeyControlProtocol: protocolTCP, KeyPortsPort: 40001, KeyPortsDestination: 80, IovaLo: 0x1000}
	if done := b.command(key); done.ControlStatus != statusOK || done.HandleN != n {
		t.Errorf("cam_lookup: %+v, want page %d", done, n)
	}
	key.IovaHi = 1
	if done := b.command(key); done.ControlStatus != statusDMA {
		t.Errorf("cam_lookup with an address nobody mapped: status %d", done.ControlStatus)
	}
}

// TestArmAndSend: the host's command arms the page and sends in one go; no server byte passes before, all pass after.
func TestArmAndSend(t *testing.T) {
	b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
	n := b.pageOf(t)
	w := b.c.page(n)
	early := c.server(flagACK, "early")
	c.sseq -= 5
	if out := b.push(1, early); len(out[0]) != 0 {
		t.Errorf("before the page is armed: %v", out)
	}
	w[regs.PageAServerIsn] = c.sseq - 1
	w[regs.PageAWindow] = regs.SetPageAWindowServer(w[regs.PageAWindow], 60000)
	w[regs.PageALocal] = regs.SetPageALocalMss(w[regs.PageALocal], 1460)
	e := regs.CommandEntry{ControlType: regs.CommandControlTypeArmAndSend, HandleN: n, HandleGeneration: handleOf(n, w) >> 20}
	done := b.command(e)
	if s := one(t, b.drain()[1]); done.ControlStatus != statusOK || string(s.payload) != request || s.ack != c.sseq {
		t.Errorf("arm_and_send: status %d, %v", done.ControlStatus, s)
	}
	c.sack = c.cseq
	if s := one(t, b.push(1, early)[0]); s.seq != c.cack || string(s.payload) != "early" {
		t.Errorf("after: %v", s)
	}
	if done := b.command(e); done.ControlStatus != statusState {
		t.Errorf("a second time: status %d, want state", done.ControlStatus)
	}
	b.check(t)
}

// TestEvents: a connection's events carry its handle, its counters and how it ended.
func TestEvents(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{})
	b.attach()
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 40001, cseq: 1, sseq: 2, opts: plainOptions, sopts: plainOptions}
	c.reach(t, Spliced)
	n := b.pageOf(t)
	one(t, b.push(1, c.server(flagACK|flagFIN, "response"))[0])
	c.cack += 9
	one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
	c.sack++
	one(t, b.push(1, c.server(flagACK, ""))[0])
	es := b.events()
	if len(es) != 4 {
		t.Fatalf("events: %+v, want opened, profile, spliced, closed", es)
	}
	for i, want := range []uint32{regs.EventControlTypeOpened, regs.EventControlTypeProfile, regs.EventControlTypeSpliced, regs.EventControlTypeClosed} {
		if e := es[i]; e.ControlType != want || e.HandleN != n || e.HandleGeneration != handleOf(n, b.c.page(n))>>20 || e.Sequence != uint32(i) || e.Tick != 1000 {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	e := es[3]
	if e.ReasonReason != reasonFIN || e.BytesClient != uint32(len(request)) || e.BytesServer != 8 || e.PacketsServer != 4 || e.PacketsClient != 4 {
		t.Errorf("closed: %+v", e)
	}
	if want := c.cack - c.sseq; e.Delta != want {
		t.Errorf("closed: delta %#x, want a0 − a1 = %#x", e.Delta, want)
	}
}

// TestWantedEvents: an opened event names both ends; the events a host asks for come in their order and only then, once
// each; and a spliced event brings the begin of what the server gets, as far as the ring's buffer goes.
func TestWantedEvents(t *testing.T) {
	const opened, established, spliced, first, closed = regs.EventControlTypeOpened, regs.EventControlTypeEstablished, regs.EventControlTypeSpliced,
		regs.EventControlTypeFirstByte, regs.EventControlTypeClosed
	for _, x := range []struct {
		name    string
		events  uint32
		buffer  uint32
		defence uint32
		world   world
		want    []uint32
		head    int
	}{
		{"none", 0, 0, 0, world4, []uint32{opened, spliced, closed}, 0},
		{"none, with buffers", 0, 64, 0, world4, []uint32{opened, spliced, closed}, 0},
		{"established", regs.HostifEventsEstablishedMask, 0, 0, world6, []uint32{opened, established, spliced, closed}, 0},
		{"first byte", regs.HostifEventsFirstByteMask, 0, 0, world4, []uint32{opened, spliced, first, closed}, 0},
		{"heads, no buffers", regs.HostifEventsHeadsMask, 0, 0, world4, []uint32{opened, spliced, closed}, 0},
		{"heads, small buffers", regs.HostifEventsHeadsMask, 64, 0, world6, []uint32{opened, spliced, closed}, min(64, len(request))},
		{"heads, large buffers", regs.HostifEventsHeadsMask, 2048, 0, world4, []uint32{opened, spliced, closed}, len(request)},
		{"all, by a cookie", 7, 2048, regs.ServiceControlDefenceAlways, world4, []uint32{opened, established, spliced, first, closed}, len(request)},
	} {
		t.Run(x.name, func(t *testing.T) {
			b, c := caseBench(t, x.world, regs.ServiceEntry{ControlDefence: x.defence})
			const at = regs.RingEvent * regs.RingStride
			b.r.Set(regs.RingBufferBytes+at, x.buffer)
			b.r.Set64(regs.RingBuffers+at, slotsAt)
			b.r.Set(regs.HostifEvents, x.events)
			c.reach(t, Spliced)
			n := b.pageOf(t)
			one(t, b.push(1, c.server(flagACK, "resp"))[0])
			one(t, b.push(1, c.server(flagACK|flagFIN, "onse"))[0])
			c.cack += 9
			one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
			c.sack++
			one(t, b.push(1, c.server(flagACK, ""))[0])
			var types []uint32
			for _, e := range b.events() {
				if e.ControlType == regs.EventControlTypeProfile {
					continue
				}
				types = append(types, e.ControlType)
				if e.HandleN != n || e.IndexService != 0 {
					t.Errorf("event %+v, want one of page %d", e, n)
				}
				switch e.ControlType {
				case opened:
					if got := [4]uint32{e.PacketsClient, e.PacketsServer, e.BytesClient, e.BytesServer}; got != words(x.world.client) || e.BytesHighClient != uint32(c.port) || e.BytesHighServer != 80 || e.Delta != 0 {
						t.Errorf("opened: %+v", e)
					}
				case spliced:
					got := b.ram.at(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, int(e.Length))
					if int(e.Length) != x.head || string(got) != request[:x.head] {
						t.Errorf("spliced brings %q, want %d bytes of the head", got, x.head)
					}
				case first:
					if e.BytesServer != 4 || e.BytesClient != uint32(len(request)) {
						t.Errorf("first_byte: %+v", e)
					}
				}
				if e.ControlType != spliced && e.Length != 0 {
					t.Errorf("event %+v brings bytes", e)
				}
			}
			if fmt.Sprint(types) != fmt.Sprint(x.want) {
				t.Errorf("events %v, want %v", types, x.want)
			}
		})
	}
}

// TestFirstByteOnce: the first byte of another 4 GiB is none of the response's.
func TestFirstByteOnce(t *testing.T) {
	b, c := spliced(t, world4, regs.ServiceEntry{}, 1, false)
	b.r.Set(regs.HostifEvents, regs.HostifEventsFirstByteMask)
	b.events()
	w := b.c.page(b.pageOf(t))
	w[regs.PageBytesServer], w[regs.PageBytesHigh] = 0, regs.SetPageBytesHighServer(0, 1)
	one(t, b.push(1, c.server(flagACK, "x"))[0])
	if es := b.events(); len(es) != 0 {
		t.Errorf("events %+v", es)
	}
	w[regs.PageBytesServer], w[regs.PageBytesHigh] = 0, 0
	one(t, b.push(1, c.server(flagACK, ""))[0])
	if es := b.events(); len(es) != 0 {
		t.Errorf("without payload: events %+v", es)
	}
	one(t, b.push(1, c.server(flagACK, "x"))[0])
	if es := b.events(); len(es) != 1 || es[0].ControlType != regs.EventControlTypeFirstByte {
		t.Errorf("events %+v, want one", es)
	}
}
