package bench

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/regs"
)

// TestDatapath runs a small measurement: everything in it is checked on the way, so here only the result's shape is.
func TestDatapath(t *testing.T) {
	r, err := Datapath(t.Context(), Config{Flows: 3000, Frames: 30_000, Rounds: 1, Loads: 100_000, Lives: 2000, SYNs: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	if r.AllocsPerPacket != 0 || r.AllocsPerLife != 0 || r.AllocsPerCookie != 0 {
		t.Errorf("%v allocations a packet, %v a connection and %v a cookie, want 0", r.AllocsPerPacket, r.AllocsPerLife, r.AllocsPerCookie)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"flows", "frame_bytes", "translate_mpps", "ns_per_packet", "random_read_ns", "lifecycles_per_s", "allocs_per_packet", "rss_bytes", "cookie_mpps", "ns_per_cookie"} {
		if _, ok := keys[k].(float64); !ok {
			t.Errorf("no number %s in %s", k, b)
		}
	}
	for _, m := range methods {
		if r.L4Mpps[m.name] <= 0 {
			t.Errorf("no figure for %s", m.name)
		}
	}
	if r.AllocsPerL4 != 0 {
		t.Errorf("%v allocations a passed packet, want 0", r.AllocsPerL4)
	}
	if r.Flows != 3000 || r.FrameBytes != 64 || r.TranslateMpps <= 0 || r.LifecyclesPerS <= 0 || r.CookieMpps <= 0 || r.RandomReadNs <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestFlowsAreLive sees that the flows really stand in the card while they are measured.
func TestFlowsAreLive(t *testing.T) {
	const n = 5000
	r, err := newRig(emu.Geometry{Pages: n})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	fs, err := openFlows(t.Context(), r, n)
	if err != nil {
		t.Fatal(err)
	}
	gens := [2]*generator{newGenerator(fs, 0), newGenerator(fs, 1)}
	r.wires[0].Port, r.wires[1].Port = gens[0], gens[1]
	if err := verify(r, gens); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		reg  regs.Reg
		want uint32
	}{
		{regs.AmuLive, n}, {regs.AmuFree, 0}, {regs.ConnectionSpliced, n},
		{regs.CamEntries.At(regs.CamClient, regs.CamStride), n}, {regs.CamEntries.At(regs.CamServer, regs.CamStride), n},
	} {
		if got := r.drv.Load(tt.reg); got != tt.want {
			t.Errorf("%s is %d, want %d", tt.reg.Name(), got, tt.want)
		}
	}
}

// TestVerifyCanFail hands the judge frames that are wrong in one place.
func TestVerifyCanFail(t *testing.T) {
	fs := &flows{n: 100, server: make([]uint32, 100)}
	g := newGenerator(fs, 0)
	for i := range fs.server {
		fs.server[i] = isn(uint32(i), 1) + 1 // as if the card translated nothing but addresses
	}
	right := func() (b [60]byte) {
		g.fill(&b, 7)
		copy(b[30:34], backend.Addr().AsSlice())
		binary.BigEndian.PutUint16(b[36:], backend.Port())
		return b
	}
	seal := func(b []byte) {
		b[24], b[25], b[50], b[51] = 0, 0, 0, 0
		binary.BigEndian.PutUint16(b[24:], ^frame.Fold(frame.Sum(b[14:34], 0)))
		binary.BigEndian.PutUint16(b[50:], ^frame.Fold(frame.Sum(b[34:], frame.Pseudo4(b[14:], 6, 26))))
	}
	for _, tt := range []struct {
		name   string
		at     int
		sealed bool
		wrong  bool
	}{
		{"nothing", 0, true, false}, {"checksum", 55, false, true}, {"server address", 33, true, true}, {"server port", 37, true, true},
		{"client address", 29, true, true}, {"seq", 40, true, true}, {"ack", 44, true, true}, {"payload", 58, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := right()
			if tt.wrong {
				b[tt.at] ^= 1
			}
			if tt.sealed {
				seal(b[:])
			}
			if err := g.judge(b[:], 1); (err != nil) != tt.wrong {
				t.Errorf("got %v", err)
			}
		})
	}
}

func BenchmarkTranslate(b *testing.B) {
	r, err := newRig(emu.Geometry{Pages: 20_000})
	if err != nil {
		b.Fatal(err)
	}
	defer r.close()
	fs, err := openFlows(b.Context(), r, 20_000)
	if err != nil {
		b.Fatal(err)
	}
	gens := [2]*generator{newGenerator(fs, 0), newGenerator(fs, 1)}
	r.wires[0].Port, r.wires[1].Port = gens[0], gens[1]
	b.ReportAllocs()
	b.ResetTimer()
	if err := r.pass(gens, b.N); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkCookie(b *testing.B) {
	c, err := newCookies()
	if err != nil {
		b.Fatal(err)
	}
	defer c.rig.close()
	b.ReportAllocs()
	b.ResetTimer()
	if err := c.pass(b.N); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkLifecycle(b *testing.B) {
	l, err := newLives(emu.Geometry{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.rig.close()
	b.ReportAllocs()
	b.ResetTimer()
	if err := l.run(b.N); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lifecycles/s")
}
