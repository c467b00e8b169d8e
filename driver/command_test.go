package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/regs"
)

func TestCommands(t *testing.T) {
	c, f := testCard(t, Config{})
	ctx := t.Context()
	if _, err := c.Allocate(ctx); !errors.Is(err, ErrNoPage) {
		t.Errorf("Allocate = %v, want %v", err, ErrNoPage)
	}
	f.set(regs.AmuFree, 1)
	h, err := c.Allocate(ctx)
	if err != nil || h.N() != 77 || h.Generation() != 5 || h.String() != "77.5" {
		t.Errorf("Allocate = %v, %v", h, err)
	}
	if err := c.Free(ctx, h); err != nil {
		t.Errorf("Free: %v", err)
	}
	err = c.ResetConnection(ctx, NewHandle(77, 4), true, true)
	var refused *CommandError
	if !errors.Is(err, ErrStaleHandle) || !errors.As(err, &refused) || err.Error() != "reset refused: stale_handle" {
		t.Errorf("ResetConnection = %v, want %v", err, ErrStaleHandle)
	}
	if err := c.ArmAndSend(ctx, h, true, 1, []byte("ack")); err != nil || f.injected[0] != (injected{99, 1, "ack"}) {
		t.Errorf("ArmAndSend: %v, %v", err, f.injected)
	}
	for _, frame := range [][]byte{nil, make([]byte, stagingBytes+1)} {
		if err := c.ArmAndSend(ctx, h, false, 0, frame); !errors.Is(err, ErrFrameSize) {
			t.Errorf("ArmAndSend of %d bytes = %v, want %v", len(frame), err, ErrFrameSize)
		}
	}
	if err := c.ArmAndSend(ctx, h, false, 2, []byte("x")); !errors.Is(err, device.ErrRange) {
		t.Errorf("ArmAndSend = %v, want %v", err, device.ErrRange)
	}
	f.injected = nil
	if server, err := c.Connect(ctx, h, &Connect{Target: 3, Port: 2000}); err != nil || server != 42 || len(f.injected) != 1 || f.injected[0] != (injected{98, 3, "port 2000"}) {
		t.Errorf("Connect: %d, %v, %v", server, err, f.injected)
	}
	if err := c.Reply(ctx, h, []byte("sorry")); err != nil || len(f.injected) != 2 || f.injected[1] != (injected{97, 77, "sorry"}) {
		t.Errorf("Reply: %v, %v", err, f.injected)
	}
	for _, answer := range [][]byte{nil, make([]byte, regs.HeadBytes+1)} {
		if err := c.Reply(ctx, h, answer); !errors.Is(err, ErrFrameSize) {
			t.Errorf("Reply of %d bytes = %v, want %v", len(answer), err, ErrFrameSize)
		}
	}
	f.injected = nil
	for _, tt := range []struct {
		x    Connect
		want string
	}{
		{Connect{Group: true}, "port 0 group"},
		{Connect{Replace: []byte("head"), Inserted: -2, Rule: 7}, `port 0 rule 7 replace "head" inserted -2`},
		{Connect{Replace: []byte{}}, `port 0 replace "" inserted 0`},
		{Connect{Inserted: 5, Boundary: 9}, "port 0"},
		{Connect{Last: true, Boundary: 9}, "port 0 last 9"},
	} {
		f.injected = nil
		if _, err := c.Connect(ctx, h, &tt.x); err != nil || len(f.injected) != 1 || f.injected[0].frame != tt.want {
			t.Errorf("Connect of %+v: %v, %v; want %q", tt.x, err, f.injected, tt.want)
		}
	}
	f.injected = nil
	if err := c.Feed(ctx, h, []byte("more")); err != nil || len(f.injected) != 1 || f.injected[0] != (injected{96, 77, "more"}) {
		t.Errorf("Feed: %v, %v", err, f.injected)
	}
	for _, chunk := range [][]byte{nil, make([]byte, regs.HeadBytes+1)} {
		if err := c.Feed(ctx, h, chunk); !errors.Is(err, ErrFrameSize) {
			t.Errorf("Feed of %d bytes = %v, want %v", len(chunk), err, ErrFrameSize)
		}
	}
	if _, err := c.Connect(ctx, h, &Connect{Replace: make([]byte, regs.HeadBytes+1)}); !errors.Is(err, ErrFrameSize) {
		t.Errorf("Connect = %v, want %v", err, ErrFrameSize)
	}
	room := make([]byte, regs.HeadBytes)
	for _, keep := range []bool{false, true} {
		want := fmt.Sprint("taken ", bit(keep))
		if n, boundary, err := c.TakeHead(ctx, h, keep, room); err != nil || string(room[:n]) != want || boundary != 4711 {
			t.Errorf("TakeHead: %q, boundary %d, %v; want %q", room[:n], boundary, err, want)
		}
	}
	if _, _, err := c.TakeHead(ctx, h, true, room[:3]); !errors.Is(err, ErrFault) { // this card writes more than it may
		t.Errorf("TakeHead with little room = %v, want %v", err, ErrFault)
	}
	if _, err := c.Command(ctx, &regs.CommandEntry{ControlType: 100}); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("Command = %v, want %v", err, device.ErrNotSupported)
	}
}

func TestCommandStatus(t *testing.T) {
	rows := map[uint32]error{
		regs.StatusArgument: device.ErrRange, regs.StatusNotSupported: device.ErrNotSupported, regs.StatusStaleHandle: ErrStaleHandle,
		regs.StatusNoPage: ErrNoPage, regs.StatusKeyExists: ErrKeyExists, regs.StatusNoPlace: ErrTableFull,
		regs.StatusNotFound: ErrNotFound, regs.StatusState: ErrState, regs.StatusDma: device.ErrDMA,
	}
	for status, want := range rows {
		if err := error(&CommandError{regs.CommandControlTypeFree, status}); !errors.Is(err, want) || strings.Contains(err.Error(), "status") {
			t.Errorf("status %d: %v, want %v", status, err, want)
		}
	}
	if err := (&CommandError{200, 201}); err.Unwrap() != nil || err.Error() != "type 200 refused: status 201" {
		t.Errorf("unknown status: %v", err)
	}
}

var cams = []struct {
	name string
	side int
	key  Key
}{
	{"ipv4", regs.CamClient, Key{Protocol: 6, Port: 1234, Destination: 80, Index: 3, Addr: netip.MustParseAddr("198.18.0.7")}},
	{"ipv6", regs.CamClient, Key{Protocol: 6, VLAN: 12, Port: 1234, Destination: 80, Index: 3, Addr: netip.MustParseAddr("2001:db8:1:2:3:4:5:6")}},
	{"server side", regs.CamServer, Key{Protocol: 6, Port: 1234, Index: 3, Addr: netip.MustParseAddr("198.18.0.7")}},
	{"local", regs.CamServer, Key{Protocol: 6, Port: 1234, Index: 3, Local: 9}},
}

func TestCAM(t *testing.T) {
	c, f := testCard(t, Config{})
	ctx := t.Context()
	for i, row := range cams {
		t.Run(row.name, func(t *testing.T) {
			h := NewHandle(uint32(i)+1, 4095)
			if _, _, err := c.CAMLookup(ctx, row.side, row.key); !errors.Is(err, ErrNotFound) {
				t.Errorf("CAMLookup = %v, want %v", err, ErrNotFound)
			}
			if err := c.CAMInsert(ctx, row.side, row.key, h, false); err != nil {
				t.Errorf("CAMInsert: %v", err)
			}
			if err := c.CAMInsert(ctx, row.side, row.key, h, false); !errors.Is(err, ErrKeyExists) {
				t.Errorf("CAMInsert = %v, want %v", err, ErrKeyExists)
			}
			if got, _, err := c.CAMLookup(ctx, row.side, row.key); err != nil || got != h {
				t.Errorf("CAMLookup = %v, %v, want %v", got, err, h)
			}
			if err := c.CAMErase(ctx, row.side, row.key); err != nil {
				t.Errorf("CAMErase: %v", err)
			}
			if len(f.cams[row.side]) != 0 {
				t.Errorf("left %v", f.cams[row.side])
			}
		})
	}
	if err := c.CAMErase(ctx, 2, Key{}); !errors.Is(err, device.ErrRange) {
		t.Errorf("CAMErase = %v, want %v", err, device.ErrRange)
	}
}

func TestCAMKeyWords(t *testing.T) {
	var cmd regs.CommandEntry
	if data := cams[0].key.encode(&cmd); data != nil || cmd.Value != 0xc6120007 || cmd.KeyControlKind != regs.KindIpv4 {
		t.Errorf("ipv4: %x, %+v", data, cmd)
	}
	data := cams[1].key.encode(&cmd)
	if want := []byte{6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0xb8, 0x0d, 0x01, 0x20}; !slices.Equal(data, want) {
		t.Errorf("ipv6: %x, want %x", data, want)
	}
}

func TestCAMEntries(t *testing.T) {
	c, f := testCard(t, Config{})
	put := func(slot uint32, e regs.CamWordEntry) {
		var w [regs.CamWordWords]uint32
		e.Encode(w[:])
		at := c.Memory(regs.MemCamClient).Memory.At(0, slot) / 4
		for i, x := range w {
			f.bar2[at+uint64(i)] = x
		}
	}
	put(1, regs.CamWordEntry{ControlValid: 1, ControlKind: regs.KindIpv4, ControlProtocol: 6, HandleN: 5, HandleGeneration: 2, PortsPort: 99, PortsDestination: 80, IndexIndex: 4, Address: [3]uint32{0xc6120001}})
	put(6, regs.CamWordEntry{ControlValid: 1, ControlKind: regs.KindIpv6, ControlVlan: 7, ControlLegB: 1, HandleN: 6, Address: [3]uint32{1}})
	put(7, regs.CamWordEntry{ControlValid: 1, ControlKind: regs.KindIpv6, ControlSecond: 1, Address: [3]uint32{0, 0, 0x20010db8}})
	put(4095, regs.CamWordEntry{ControlValid: 1, ControlKind: regs.KindIpv6}) // its second word cannot be
	var got []CAMEntry
	if err := c.CAMEntries(t.Context(), regs.CamClient, func(e CAMEntry) bool { got = append(got, e); return true }); err != nil {
		t.Fatal(err)
	}
	want := []CAMEntry{
		{1, Key{Protocol: 6, Port: 99, Destination: 80, Index: 4, Addr: netip.MustParseAddr("198.18.0.1")}, NewHandle(5, 2), false},
		{6, Key{VLAN: 7, Addr: netip.MustParseAddr("2001:db8::1")}, NewHandle(6, 0), true},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("entries (-want +got):\n%s", d)
	}
	n := 0
	if err := c.CAMEntries(t.Context(), regs.CamClient, func(CAMEntry) bool { n++; return false }); err != nil || n != 1 {
		t.Errorf("stopped after %d entries, %v", n, err)
	}
}

func TestTables(t *testing.T) {
	c, f := testCard(t, Config{})
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, smallWords, smallWords + 1, 1000, stagingBytes / 4, stagingBytes/4 + 1} {
		want, got := make([]uint32, n), make([]uint32, n)
		for i := range want {
			want[i] = rng.Uint32()
		}
		f.verbs = nil
		const off = 4096 - 4
		if err := c.WriteTable(ctx, off, want); err != nil {
			t.Fatalf("WriteTable of %d words: %v", n, err)
		}
		if n <= smallWords && len(f.verbs) != 0 {
			t.Errorf("WriteTable of %d words took commands", n)
		}
		if err := c.ReadTable(ctx, off, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("ReadTable of %d words: %v, equal %v", n, err, slices.Equal(got, want))
		}
	}
	if err := c.Fill(ctx, 4096, 8192, 0x55); err != nil || f.bar2[4096/4+8192/4-1] != 0x55 {
		t.Errorf("Fill: %v", err)
	}
	if err := c.Clear(ctx, 4096, 4); err != nil || f.bar2[4096/4] != 0 || f.bar2[4096/4+1] != 0x55 {
		t.Errorf("Clear: %v", err)
	}
	for _, row := range []struct {
		off uint64
		n   int
	}{{1, 1}, {regs.Bar2Bytes, 1}, {regs.Bar2Bytes - 4, 2}, {1 << 63, 1}, {2, 100}} {
		if err := c.WriteTable(ctx, row.off, make([]uint32, row.n)); !errors.Is(err, device.ErrRange) {
			t.Errorf("WriteTable of %d words at %#x = %v, want %v", row.n, row.off, err, device.ErrRange)
		}
		if err := c.ReadTable(ctx, row.off, make([]uint32, row.n)); !errors.Is(err, device.ErrRange) {
			t.Errorf("ReadTable of %d words at %#x = %v, want %v", row.n, row.off, err, device.ErrRange)
		}
		if err := c.Clear(ctx, row.off, 4*uint64(row.n)); !errors.Is(err, device.ErrRange) {
			t.Errorf("Clear of %d words at %#x = %v, want %v", row.n, row.off, err, device.ErrRange)
		}
	}
	m := c.Memory(regs.MemServer)
	if off, err := m.At(0, 7); err != nil || off != regs.MemServerOffset+7*regs.ServerBytes {
		t.Errorf("At = %#x, %v", off, err)
	}
	if _, err := m.At(0, 8); !errors.Is(err, device.ErrRange) {
		t.Errorf("At = %v, want %v", err, device.ErrRange)
	}
	if _, err := m.At(1, 0); !errors.Is(err, device.ErrRange) {
		t.Errorf("At = %v, want %v", err, device.ErrRange)
	}
}

func TestBank(t *testing.T) {
	c, f := testCard(t, Config{})
	if err := c.SwitchBank(1, 77); err != nil {
		t.Fatal(err)
	}
	if b, g := c.Bank(); b != 1 || g != 77 {
		t.Errorf("Bank = %d, %d, want 1, 77", b, g)
	}
	f.set(regs.TableInUse, 3)
	steps := 0
	c.cfg.Pump = func() {
		if steps++; steps == 5 {
			f.set(regs.TableInUse, 0)
		}
	}
	if err := c.WaitBankIdle(t.Context(), 0); err != nil || steps < 5 || steps > 10 {
		t.Errorf("WaitBankIdle: %v after %d steps", err, steps)
	}
	for _, x := range [][2]uint32{{2, 0}, {0, 1 << 16}} {
		if err := c.SwitchBank(x[0], x[1]); !errors.Is(err, device.ErrRange) {
			t.Errorf("SwitchBank(%d, %d) = %v, want %v", x[0], x[1], err, device.ErrRange)
		}
	}
}

func TestConnections(t *testing.T) {
	c, f := testCard(t, Config{})
	ctx := t.Context()
	want := []uint32{0, 17, 4095, 4096, 4999} // the staging buffer ends between the fourth and the fifth
	for _, n := range want {
		var w [regs.PageWords]uint32
		e := regs.PageEntry{ControlValid: 1, ControlState: regs.StateSpliced, Opened: n, ControlGeneration: 9}
		e.Encode(w[:])
		for i, x := range w {
			f.bar2[uint64(n)*regs.PageWords+uint64(i)] = x
		}
	}
	var got []uint32
	if err := c.Connections(ctx, func(n uint32, p *regs.PageEntry) bool {
		if p.Opened != n || p.ControlState != regs.StateSpliced {
			t.Errorf("page %d = %+v", n, p)
		}
		got = append(got, n)
		return true
	}); err != nil || !slices.Equal(got, want) {
		t.Errorf("Connections = %v, %v, want %v", got, err, want)
	}
	if err := c.Connections(ctx, func(n uint32, _ *regs.PageEntry) bool { // the card may be used meanwhile
		_, err := c.Page(ctx, n)
		return err == nil && n < 17
	}); err != nil {
		t.Error(err)
	}
	if p, err := c.Page(ctx, 4999); err != nil || p.ControlGeneration != 9 {
		t.Errorf("Page = %+v, %v", p, err)
	}
	if _, err := c.Page(ctx, 5000); !errors.Is(err, device.ErrRange) {
		t.Errorf("Page = %v, want %v", err, device.ErrRange)
	}
	f.bar2[(regs.MemHeadOffset+3*regs.HeadBytes)/4] = 0x20544547
	if b, err := c.Head(ctx, 3); err != nil || len(b) != regs.HeadBytes || string(b[:4]) != "GET " {
		t.Errorf("Head = %q…, %v", b[:4], err)
	}
	if _, err := c.Head(ctx, 16); !errors.Is(err, device.ErrRange) {
		t.Errorf("Head = %v, want %v", err, device.ErrRange)
	}
}

func TestCounters(t *testing.T) {
	c, f := testCard(t, Config{})
	f.set(regs.PortRxFrames.At(1, regs.PortStride), 5)
	f.set(regs.PortRxFrames.At(1, regs.PortStride)+4, 1)
	f.set(regs.PortRxSize.At(2, 8), 7)
	f.set(regs.TimerNow, 1500)
	cs, err := c.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, k := range cs {
		if _, dup := got[k.Name]; dup {
			t.Errorf("%s appears twice", k.Name)
		}
		if k.Time != 1500*time.Microsecond {
			t.Errorf("%s was taken at %v", k.Name, k.Time)
		}
		got[k.Name] = k.Value
	}
	for name, want := range map[string]uint64{"port.server.rx_frames": 1<<32 | 5, "port.client.rx_frames": 0, "port.client.rx_size[2]": 7, "amu.allocated": 0, "ring.event.lost": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %d, %v, want %d", name, v, ok, want)
		}
	}
	n := 0
	for _, b := range regs.Blocks {
		for _, r := range b.Registers {
			if r.Class == regs.ClassCounter {
				n += len(b.Instances) * int(r.Count)
			}
		}
	}
	if len(cs) != n {
		t.Errorf("%d counters, want %d", len(cs), n)
	}
	if _, err := c.BlockCounters(t.Context(), &regs.Blocks[0], 0); !errors.Is(err, device.ErrRange) {
		t.Errorf("BlockCounters of the directory = %v, want %v", err, device.ErrRange)
	}
	if _, err := c.Snapshot(t.Context(), regs.Bar0Bytes-4, make([]uint32, 2)); !errors.Is(err, device.ErrRange) {
		t.Errorf("Snapshot = %v, want %v", err, device.ErrRange)
	}
}

// TestBlocking waits by interrupt for a card that runs by itself, from several goroutines.
func TestBlocking(t *testing.T) {
	f := newFakeCard()
	f.run(t)
	c := openFake(t, f, Config{})
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint32(50) {
				off := 1<<20*g + 64
				want := slices.Repeat([]uint32{i}, 20)
				got := make([]uint32, 20)
				if err := c.WriteTable(t.Context(), off, want); err != nil {
					t.Error(err)
				}
				if err := c.ReadTable(t.Context(), off, got); err != nil || !slices.Equal(got, want) {
					t.Errorf("read %v, %v, want %v", got, err, want)
				}
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.LateCompletions != 0 {
		t.Errorf("Stats = %+v", s)
	}
}

// answering is a device whose card acts while the host waits, without an interrupt.
type answering struct {
	device.Device
	act func()
}

func (d *answering) Wait(ctx context.Context, v int) (uint64, error) {
	d.act()
	return d.Device.Wait(ctx, v)
}

func TestLostInterrupt(t *testing.T) {
	f := newFakeCard()
	f.quiet = true
	d := &answering{vfiousertest.Join(t, f), f.step}
	defer d.Close()
	c, err := Open(t.Context(), d, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Clear(t.Context(), 0, 4); err != nil {
		t.Fatal(err)
	}
	if s := c.Stats(); s.LostInterrupts != 1 {
		t.Errorf("Stats = %+v, want one lost interrupt", s)
	}
}

// TestLateCompletion: a command that timed out holds the staging buffer until its completion comes, which is then not
// taken for another's.
func TestLateCompletion(t *testing.T) {
	c, f := testCard(t, Config{PumpLimit: 10})
	ctx := t.Context()
	f.hold = 10
	if err := c.WriteTable(ctx, 0, slices.Repeat([]uint32{1}, 100)); !errors.Is(err, ErrTimeout) {
		t.Fatalf("WriteTable = %v, want %v", err, ErrTimeout)
	}
	f.hold = 5
	got := make([]uint32, 100)
	if err := c.ReadTable(ctx, 0, got); err != nil || !slices.Equal(got, slices.Repeat([]uint32{1}, 100)) {
		t.Errorf("ReadTable = %v, %v", got, err)
	}
	if s := c.Stats(); s.LateCompletions != 1 {
		t.Errorf("Stats = %+v, want one late completion", s)
	}
	f.drop = 1
	if err := c.Clear(ctx, 0, 4); !errors.Is(err, ErrTimeout) {
		t.Errorf("Clear = %v, want %v", err, ErrTimeout)
	}
	err := c.Clear(ctx, 0, 4)
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "earlier command") {
		t.Errorf("Clear after a lost completion = %v, want %v", err, ErrTimeout)
	}
	if err := c.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Clear(ctx, 0, 4); err != nil {
		t.Errorf("Clear after Reset: %v", err)
	}
}

func TestStrayCompletion(t *testing.T) {
	c, f := testCard(t, Config{})
	f.strayReal = true
	if err := c.Clear(t.Context(), 0, 4); err != nil {
		t.Fatal(err)
	}
	if s := c.Stats(); s.LateCompletions != 1 {
		t.Errorf("Stats = %+v, want one late completion", s)
	}
}

func TestCommandCancelled(t *testing.T) {
	c, f := testCard(t, Config{})
	f.hold = 1 << 30
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	c.cfg.Pump = func() {
		if steps++; steps == 3 {
			cancel()
		}
	}
	if err := c.Clear(ctx, 0, 4); !errors.Is(err, context.Canceled) || steps != 3 {
		t.Errorf("Clear = %v after %d steps, want %v", err, steps, context.Canceled)
	}
	if err := c.Clear(ctx, 0, 4); !errors.Is(err, context.Canceled) {
		t.Errorf("Clear = %v, want %v", err, context.Canceled)
	}
	f2 := newFakeCard() // by interrupt: a card that never answers
	c2 := openFake(t, f2, Config{Timeout: 50 * time.Millisecond})
	if err := c2.Clear(t.Context(), 0, 4); !errors.Is(err, ErrTimeout) {
		t.Errorf("Clear = %v, want %v", err, ErrTimeout)
	}
	f2.set(regs.ControlStatus, regs.ControlStatusFaultMask)
	if err := c2.Clear(t.Context(), 0, 4); !errors.Is(err, ErrFault) {
		t.Errorf("Clear = %v, want %v", err, ErrFault)
	}
}

func TestAddressWords(t *testing.T) {
	rows := []struct {
		addr string
		kind uint32
		w    [4]uint32
	}{
		{"198.18.0.1", regs.KindIpv4, [4]uint32{0xc6120001}},
		{"::ffff:198.18.0.1", regs.KindIpv4, [4]uint32{0xc6120001}},
		{"2001:db8:1:2:3:4:5:6", regs.KindIpv6, [4]uint32{0x00050006, 0x00030004, 0x00010002, 0x20010db8}},
	}
	for _, row := range rows {
		a := netip.MustParseAddr(row.addr)
		kind, w := AddressWords(a)
		if kind != row.kind || w != row.w {
			t.Errorf("AddressWords(%s) = %d, %#x, want %d, %#x", row.addr, kind, w, row.kind, row.w)
		}
		if got := Address(kind, w); got != a.Unmap() {
			t.Errorf("Address = %s, want %s", got, row.addr)
		}
	}
	if kind, _ := AddressWords(netip.Addr{}); kind != regs.KindNone || Address(regs.KindLocal, [4]uint32{1}).IsValid() {
		t.Error("the zero Addr has an address")
	}
	m := [6]byte{2, 1, 0xaa, 0xbb, 0xcc, 0xdd}
	if lo, hi := MACWords(m); lo != 0xaabbccdd || hi != 0x0201 || MAC(lo, hi) != m {
		t.Errorf("MACWords = %#x, %#x", lo, hi)
	}
}

// TestPassAndAdjust: the words of both commands.
func TestPassAndAdjust(t *testing.T) {
	c, f := testCard(t, Config{})
	ctx := t.Context()
	f.set(regs.AmuFree, 1)
	h, err := c.Allocate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		x    Pass
		want string
	}{
		{Pass{Client: netip.MustParseAddrPort("198.18.0.10:0"), VIP: 2, VIPPort: 50000, Service: 3, Server: 4, Template: true},
			"kind 1 protocol 6 vlan 0 ports 0>50000 vip 2 server 4 port 0 service 3 port 50000 flags 100 value 0xc612000a "},
		{Pass{UDP: true, Client: netip.MustParseAddrPort("[2001:db8::10]:4000"), VIP: 2, VIPPort: 20, VLAN: 7, Service: 3, Server: 4, Port: 61440, FromServer: true, Beside: h, Module: true},
			"kind 2 protocol 17 vlan 7 ports 4000>20 vip 2 server 4 port 61440 service 3 port 20 flags 011 value 0x10 100000000000000000000000b80d0120"},
	} {
		f.injected = nil
		got, err := c.Pass(ctx, &tt.x)
		if err != nil || got != NewHandle(78, 6) || len(f.injected) != 1 {
			t.Fatalf("Pass: %v, %v, %v", got, err, f.injected)
		}
		if f.injected[0].frame != tt.want {
			t.Errorf("Pass of %+v:\n got %s\nwant %s", tt.x, f.injected[0].frame, tt.want)
		}
	}
	f.injected = nil
	if err := c.Adjust(ctx, h, true, 4711, -3); err != nil || len(f.injected) != 1 || f.injected[0] != (injected{94, 77, "1 4711 -3"}) {
		t.Errorf("Adjust: %v, %v", err, f.injected)
	}
}
