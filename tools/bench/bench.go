package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/regs"
)

// Config says how much to measure. Its zero value is the full measurement.
type Config struct {
	Flows  uint32 // live connections; zero: as many as the default card has pages
	Frames int    // translated frames of one round; zero: 6,000,000
	Rounds int    // the median counts; zero: 5
	Loads  int    // random reads of one round; zero: 4,000,000
	Lives  int    // whole connections of one round; zero: 300,000
	SYNs   int    // SYNs answered with cookies in one round; zero: 3,000,000

	Progress func(text string) // told what is being done; nil: nobody is
}

// Result is what `bench datapath` prints.
type Result struct {
	Flows             uint32             `json:"flows"`
	FrameBytes        int                `json:"frame_bytes"`
	TranslateMpps     float64            `json:"translate_mpps"` // one core
	NsPerPacket       float64            `json:"ns_per_packet"`
	RandomReadNs      float64            `json:"random_read_ns"`
	LifecyclesPerS    float64            `json:"lifecycles_per_s"` // one core
	NsPerLifecycle    float64            `json:"ns_per_lifecycle"`
	AllocsPerPacket   float64            `json:"allocs_per_packet"`
	AllocsPerLife     float64            `json:"allocs_per_lifecycle"`
	CookieMpps        float64            `json:"cookie_mpps"` // one core
	L4Mpps            map[string]float64 `json:"l4_mpps"`     // one core, by method
	L4PerRead         map[string]float64 `json:"l4_packet_in_random_reads"`
	AllocsPerL4       float64            `json:"allocs_per_l4_packet"`
	NsPerCookie       float64            `json:"ns_per_cookie"`
	AllocsPerCookie   float64            `json:"allocs_per_cookie"`
	RSSBytes          uint64             `json:"rss_bytes"`
	PacketsPerRead    float64            `json:"packet_in_random_reads"`
	LifecyclesPerRead float64            `json:"lifecycle_in_random_reads"`
	CookiesPerRead    float64            `json:"cookie_in_random_reads"`
	CPU               string             `json:"cpu"`
	Go                string             `json:"go"`
}

// Text is the result for a person.
func (r *Result) Text() string {
	return fmt.Sprintf(`%s, %s, one core
translate   %.2f Mpps: %d flows hit at random, %d-byte frames
            %.1f ns a packet, %.2f random reads; %g allocations
lifecycles  %.0f a second: SYN, request of 512 bytes, splice, response, both FINs
            %.0f ns each, %.1f random reads; %g allocations
cookies     %.2f Mpps: SYNs of %d bytes with all options, from random sources, each answered
            %.1f ns each, %.2f random reads; %g allocations
%srandom read %.1f ns: dependent loads over %d MiB
memory      %d MiB resident
`, r.CPU, r.Go, r.TranslateMpps, r.Flows, r.FrameBytes, r.NsPerPacket, r.PacketsPerRead, r.AllocsPerPacket,
		r.LifecyclesPerS, r.NsPerLifecycle, r.LifecyclesPerRead, r.AllocsPerLife,
		r.CookieMpps, len(flooder{}.template)+4, r.NsPerCookie, r.CookiesPerRead, r.AllocsPerCookie, r.l4Text(), r.RandomReadNs, randomReadBytes>>20, r.RSSBytes>>20)
}

func (r *Result) l4Text() string {
	var b strings.Builder
	for _, m := range methods {
		fmt.Fprintf(&b, "%-11s %.2f Mpps: passed on, as many flows, %d-byte frames; %.2f random reads; %g allocations\n", m.name, r.L4Mpps[m.name], r.FrameBytes, r.L4PerRead[m.name], r.AllocsPerL4)
	}
	return b.String()
}

func (c *Config) fill() {
	if c.Flows == 0 {
		c.Flows = regs.MemPageCount
	}
	if c.Frames == 0 {
		c.Frames = 6_000_000
	}
	if c.Rounds == 0 {
		c.Rounds = 5
	}
	if c.Loads == 0 {
		c.Loads = 4_000_000
	}
	if c.Lives == 0 {
		c.Lives = 300_000
	}
	if c.SYNs == 0 {
		c.SYNs = 3_000_000
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
}

// Datapath measures everything, each figure as the median of several rounds. Random reads are measured between the
// rounds, so that a busy neighbour slows both; and only the time counts that this process has a core.
func Datapath(ctx context.Context, cfg Config) (Result, error) {
	cfg.fill()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	res := Result{Flows: cfg.Flows, FrameBytes: frameBytes, CPU: cpuModel(), Go: runtime.Version()}
	var packets, reads []float64
	if err := translate(ctx, cfg, &res, &packets, &reads); err != nil {
		return Result{}, err
	}
	cfg.Progress("whole connections")
	var lives []float64
	for range cfg.Rounds {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		n, allocs, err := lifecycles(cfg)
		if err != nil {
			return Result{}, fmt.Errorf("lifecycles: %w", err)
		}
		lives = append(lives, 1e9/n)
		res.AllocsPerLife = max(res.AllocsPerLife, allocs)
		read, err := randomRead(cfg.Loads)
		if err != nil {
			return Result{}, err
		}
		reads = append(reads, read)
	}
	if err := res.cookies(ctx, cfg); err != nil {
		return Result{}, fmt.Errorf("cookies: %w", err)
	}
	if err := res.l4(ctx, cfg); err != nil {
		return Result{}, fmt.Errorf("layer 4: %w", err)
	}
	res.NsPerPacket, res.RandomReadNs, res.NsPerLifecycle = median(packets), median(reads), median(lives)
	res.TranslateMpps, res.LifecyclesPerS = 1e3/res.NsPerPacket, 1e9/res.NsPerLifecycle
	res.PacketsPerRead, res.LifecyclesPerRead = res.NsPerPacket/res.RandomReadNs, res.NsPerLifecycle/res.RandomReadNs
	return res, nil
}

// translate fills the card with flows and times small frames of random ones.
func translate(ctx context.Context, cfg Config, res *Result, packets, reads *[]float64) error {
	r, err := newRig(emu.Geometry{Pages: cfg.Flows})
	if err != nil {
		return err
	}
	defer r.close()
	cfg.Progress(fmt.Sprintf("opening %d connections", cfg.Flows))
	fs, err := openFlows(ctx, r, cfg.Flows)
	if err != nil {
		return err
	}
	gens := [2]*generator{newGenerator(fs, 0), newGenerator(fs, 1)}
	r.wires[0].Port, r.wires[1].Port = gens[0], gens[1]
	debug.FreeOSMemory() // the end systems that opened the connections are not the card's
	if err := verify(r, gens); err != nil {
		return err
	}
	res.RSSBytes = rss()
	for i := range cfg.Rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		cfg.Progress(fmt.Sprintf("translating %d frames, round %d of %d", cfg.Frames, i+1, cfg.Rounds))
		before, start := mallocs(), processTime()
		if err := r.pass(gens, cfg.Frames); err != nil {
			return err
		}
		*packets = append(*packets, float64((processTime()-start).Nanoseconds())/float64(cfg.Frames))
		res.AllocsPerPacket = max(res.AllocsPerPacket, perRun(mallocs()-before, cfg.Frames))
		read, err := randomRead(cfg.Loads)
		if err != nil {
			return err
		}
		*reads = append(*reads, read)
	}
	return nil
}

// pass sends n frames, half from each side, and sees all of them come out of the other.
func (r *rig) pass(gens [2]*generator, n int) error {
	for side, g := range gens {
		g.left, g.received = n/2+side*(n%2), 0
	}
	for gens[0].left+gens[1].left > 0 {
		r.step()
	}
	r.step()
	if got := gens[0].received + gens[1].received; got != uint64(n) {
		return fmt.Errorf("%d frames went in, %d came out", n, got)
	}
	return nil
}

// verify sends some frames and looks at each that comes out: addresses, numbers and both checksums.
func verify(r *rig, gens [2]*generator) error {
	var bad []error
	for side, g := range gens {
		g.check = func(b []byte) {
			if err := g.judge(b, side); err != nil && len(bad) < 3 {
				bad = append(bad, fmt.Errorf("frame to the %s: %w\n% x", [2]string{"client", "server"}[side], err, b))
			}
		}
	}
	err := r.pass(gens, 20_000)
	gens[0].check, gens[1].check = nil, nil
	return errors.Join(append(bad, err)...)
}

// judge compares a translated frame with what the flow's own numbers call for.
func (g *generator) judge(b []byte, side int) error {
	if len(b) != 60 || frame.Fold(frame.Sum(b[14:34], 0)) != 0xffff || frame.Fold(frame.Sum(b[34:], frame.Pseudo4(b[14:], 6, 26))) != 0xffff {
		return errors.New("wrong length or checksum")
	}
	client, other, clientPortAt, otherPortAt, want := b[26:30], b[30:34], 34, 36, backend
	if side == 0 {
		client, other, clientPortAt, otherPortAt, want = other, client, otherPortAt, clientPortAt, vip
	}
	f := (binary.BigEndian.Uint32(client) - 198<<24 - 18<<16 - 256) + uint32(binary.BigEndian.Uint16(b[clientPortAt:])-clientPort)*addresses
	seq, ack := isn(f, 0)+1+uint32(len(request)), isn(f, 1)+1
	if side == 0 {
		seq, ack = g.server[f], seq
	}
	switch {
	case f >= g.n || !bytes.Equal(other, want.Addr().AsSlice()) || binary.BigEndian.Uint16(b[otherPortAt:]) != want.Port():
		return errors.New("wrong address or port")
	case binary.BigEndian.Uint32(b[38:]) != seq || binary.BigEndian.Uint32(b[42:]) != ack:
		return fmt.Errorf("seq and ack, want %08x %08x", seq, ack)
	case string(b[54:]) != "splice":
		return errors.New("wrong payload")
	}
	return nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// perRun is how many allocations each of n runs made: a whole number, as testing.AllocsPerRun gives it, so that what the
// Go runtime does now and then does not count.
func perRun(mallocs uint64, n int) float64 { return float64(mallocs / uint64(n)) }

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// rss is the memory this process has in use; zero where the system does not say.
func rss() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(string(f[1]), 10, 64)
	return pages * uint64(os.Getpagesize())
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(b) {
		if k, v, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(k)) == "model name" {
			return string(bytes.TrimSpace(v))
		}
	}
	return runtime.GOARCH
}
