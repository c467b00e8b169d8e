package slots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/bitstream/container"
	"splicenic/bitstream/program"
	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/flash"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
	rtflash "splicenic/runtime/flash"
	"splicenic/tools/control"
	"splicenic/tools/open"
	"splicenic/tools/signing"
)

// emulated is a card whose slots are looked at, and the emulator behind it. f may be nil: a new board.
func emulated(t *testing.T, f *flash.Flash) (*Session, *emu.Card) {
	t.Helper()
	wire, _ := port.Pair(port.MemConfig{})
	e, err := emu.New(emu.Config{Client: wire, Flash: f, FlashScale: 0.0001, Geometry: emu.Geometry{Pages: 1024, Heads: 16, CamClientWords: 4096, CamServerWords: 8192, UrlNodes: 256}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	d := device.Local(e, device.LocalConfig{})
	t.Cleanup(func() { d.Close() })
	drv, err := driver.Open(t.Context(), d, driver.Config{Shell: true})
	if err != nil {
		t.Fatal(err)
	}
	return &Session{rtflash.Of(drv), "emu", func() error { return nil }}, e
}

// stream is an image of the emulated card with n bytes.
func stream(t *testing.T, version uint32, n int) []byte {
	t.Helper()
	b, err := image.Encode(image.Params{Name: "next", Version: image.Version{version, 0, 0}, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry{Pages: 1024}}, image.Options{Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func save(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// planned reads and plans, as a command does.
func planned(t *testing.T, s *Session, r Request) (*program.Plan, error) {
	t.Helper()
	img, err := ReadImage(r, nil)
	if err != nil {
		return nil, err
	}
	return Plan(t.Context(), s, img, r, nil)
}

func mustPlan(t *testing.T, s *Session, r Request) *program.Plan {
	t.Helper()
	p, err := planned(t, s, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustLoad(t *testing.T, s *Session, r Request) *program.Plan {
	t.Helper()
	p := mustPlan(t, s, r)
	if err := Run(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, s *Session, at uint32, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if err := s.Read(t.Context(), at, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// erased says which sectors were erased.
func erased(e *emu.Card) (sectors []int) {
	e.WithFlash(func(f *flash.Flash) {
		for i, n := range f.Counts().Erases {
			if n > 0 {
				sectors = append(sectors, i)
			}
		}
	})
	return sectors
}

// failure is an error as a command ends with it.
func failure(t *testing.T, err error) *control.Failure {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return control.Explain("load", err)
}

const (
	sector = 64 << 10
	slot1  = 16 << 20
	slot2  = 32 << 20
)

// TestPlanText has a plan say what is erased, written and left, how long it takes and that nothing is reset.
func TestPlanText(t *testing.T) {
	s, e := emulated(t, nil)
	file := save(t, "next.bin", stream(t, 2, 3*sector))
	text := func(r Request) string {
		var b strings.Builder
		Describe(&b, mustPlan(t, s, r))
		return regexp.MustCompile(`about [0-9.]+(µs|ms|s)\n`).ReplaceAllString(b.String(), "about TIME\n")
	}
	r := Request{File: file, Slot: program.Auto, Unsigned: true}
	got := text(r)
	sum := mustPlan(t, s, r).SHA256
	want := "196608 bytes, SHA-256 " + sum + `
to slot 1, at 0x1000000
sectors: 3 to write, 1 to erase, 0 hold already what they should; about TIME
  erase        0x01000000
  write        0x01010000 to 0x01020000, 2 sectors
  write        0x01000000
no reset: what runs goes on running
note: part: the image names no part (skipped)
note: signature: the image is not signed: board, digests and rollback counter cannot be checked (warn)
note: forced, --unsigned: a signature is not asked for
`
	if got != want {
		t.Errorf("got\n%swanted\n%s", got, want)
	}
	if n := erased(e); n != nil {
		t.Errorf("a plan has erased %v", n)
	}
	mustLoad(t, s, r)
	if got := text(r); !strings.Contains(got, "nothing to do: the flash holds these bytes already\nno reset") || !strings.Contains(got, "to slot 1,") {
		t.Errorf("again: got\n%s", got)
	}
	r.Slot, r.Boots = 2, true
	if got := text(r); !strings.Contains(got, "to slot 2, at 0x2000000") || !strings.Contains(got, "then the card boots: it leaves its bus and comes back\n") || strings.Contains(got, "no reset") {
		t.Errorf("with a boot: got\n%s", got)
	}
}

// TestPlanRuns joins sectors that lie side by side, and no others.
func TestPlanRuns(t *testing.T) {
	s, _ := emulated(t, nil)
	var text strings.Builder
	for _, at := range []uint32{slot1, slot1 + sector, slot1 + 7*sector, slot1 + 8*sector, slot1 + 9*sector} {
		fmt.Fprintf(&text, ":02000004%04X%02X\n:0100000055AA\n", at>>16, byte(-(6 + at>>24 + at>>16&0xff)))
	}
	var got strings.Builder
	Describe(&got, mustPlan(t, s, Request{File: save(t, "x.mcs", []byte(text.String()+":00000001FF\n")), Raw: true}))
	if want := "  write        0x01000000 to 0x01010000, 2 sectors\n  write        0x01070000 to 0x01090000, 3 sectors\n"; !strings.Contains(got.String(), want) {
		t.Errorf("got\n%s", got.String())
	}
}

// TestPlanJSON holds the names that programs read.
func TestPlanJSON(t *testing.T) {
	s, _ := emulated(t, nil)
	b, err := json.Marshal(mustPlan(t, s, Request{File: save(t, "next.bin", stream(t, 2, 2*sector)), Slot: 2, Unsigned: true}))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"slot": 2., "offset": float64(slot2), "bytes": 2. * sector, "erase": 1., "write": 2., "skip": 0., "resumes": false, "written": 0., "boots": false} {
		if doc[name] != want {
			t.Errorf("%s is %v, wanted %v", name, doc[name], want)
		}
	}
	if sum, _ := doc["sha256"].(string); len(sum) != 64 {
		t.Errorf("sha256 is %v", doc["sha256"])
	}
	if seconds, _ := doc["seconds"].(float64); seconds <= 0 || seconds > 60 {
		t.Errorf("seconds is %v", doc["seconds"])
	}
	steps, _ := doc["steps"].([]any)
	if len(steps) != 3 || fmt.Sprint(steps[0]) != fmt.Sprint(map[string]any{"address": float64(slot2), "erase": true, "write": false}) {
		t.Errorf("steps are %v", doc["steps"])
	}
	if notes, _ := doc["notes"].([]any); len(notes) != 3 {
		t.Errorf("notes are %v", doc["notes"])
	}
}

// TestRefusals: what would take the way back, or what runs, is refused with the flag that has it done, and nothing is erased.
func TestRefusals(t *testing.T) {
	s, e := emulated(t, nil)
	file := save(t, "next.bin", stream(t, 2, 0))
	key := save(t, "release.pub", nil)
	private, err := signing.Keygen(strings.TrimSuffix(key, ".pub") + "2")
	if err != nil {
		t.Fatal(err)
	}
	raw := uint32(slot1)
	for name, c := range map[string]struct {
		r        Request
		exit     int
		why, say string
	}{
		"golden":           {Request{Slot: 0, Unsigned: true}, 6, "golden slot: slot 0 holds the image that the card falls back to", "--force-golden"},
		"running":          {Request{Slot: 0, Unsigned: true, Golden: true}, 6, "running slot: the card runs the image of slot 0", "--force-running"},
		"running alone":    {Request{Slot: 0, Unsigned: true, Running: true}, 6, "golden slot", "--force-golden"},
		"no such slot":     {Request{Slot: 7, Unsigned: true}, 6, "the card has slots 0 to 2, not 7", "name one of them"},
		"not signed":       {Request{Slot: 1, Keys: []string{private.Public}}, 6, "the image is not signed", "bitstream info"},
		"raw into golden":  {Request{Raw: true, Offset: new(uint32)}, 6, "golden slot", "--force-golden"},
		"a key that is no": {Request{Slot: 1, Keys: []string{file}}, 2, "", ".pub file"},
		"raw, no image":    {Request{Raw: true, File: key, Offset: &raw}, 2, "", ""},
	} {
		if c.r.File == "" {
			c.r.File = file
		}
		_, err := planned(t, s, c.r)
		f := failure(t, err)
		if f.Exit != c.exit || !strings.Contains(f.Why, c.why) || !strings.Contains(f.Do, c.say) {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	p := mustPlan(t, s, Request{File: file, Slot: 0, Unsigned: true, Golden: true, Running: true})
	for _, want := range []string{"forced, --force-golden: ", "forced, --force-running: ", "forced, --unsigned: ", "this is the golden slot: a power cut"} {
		if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("no note %q among %q", want, p.Notes)
		}
	}
	e.SetSensors(emu.Sensors{Temperature: 99000, Vccint: 1000, Vccaux: 1800})
	_, err = planned(t, s, Request{File: file, Slot: 1, Unsigned: true})
	if f := failure(t, err); f.Exit != 6 || !strings.Contains(f.Why, "temperature") {
		t.Errorf("hot: got %+v", f)
	}
	if n := erased(e); n != nil {
		t.Errorf("sectors %v were erased", n)
	}
}

// TestSigned loads a container; its counter then stands in the way of older ones.
func TestSigned(t *testing.T) {
	s, _ := emulated(t, nil)
	base := filepath.Join(t.TempDir(), "release")
	pair, err := signing.Keygen(base)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.PrivateKey(pair.Private)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(rollback uint32, board uint32, payload []byte) string {
		v, _ := container.ParseVersion("2.0.0")
		b, err := container.Sign(container.Manifest{Name: "next", Board: board, Part: "xc7a200t", IDCode: 0x03636093, ShellDigest: regs.ShellDigest256, DataPathDigest: regs.DataPathDigest256,
			Version: v, Rollback: rollback, SectorBytes: sector, Created: "2026-01-02T03:04:05Z"}, payload, key)
		if err != nil {
			t.Fatal(err)
		}
		return save(t, "next.spl", b)
	}
	image := stream(t, 2, 0)
	r := Request{File: signed(5, 1, image), Slot: program.Auto, Keys: []string{pair.Public}}
	mustLoad(t, s, r)
	if got := read(t, s, slot1, len(image)); !bytes.Equal(got, image) {
		t.Error("the flash does not hold the payload")
	}
	l, err := Look(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	x := l.Slots[1]
	if x.State != program.Try || x.Version != "2.0.0" || x.Rollback != 5 || !x.Signed || x.Source != "next.spl" || x.DataPathDigest != regs.DataPathDigest || fmt.Sprint(x.Parts) != "[XC7A200T]" {
		t.Errorf("slot 1 is %+v", x)
	}
	g := l.Slots[0]
	if !g.Golden || !g.Running || !g.Next || g.Name != "emulator" || g.Version != "1.0.0" || g.DataPathDigest != regs.DataPathDigest {
		t.Errorf("slot 0 is %+v", g)
	}
	var text strings.Builder
	l.Text(&text)
	for _, want := range []string{
		`^SLOT +STATE +NAME +VERSION +DATA PATH +PART +BYTES +SHA-256 +ROLLBACK +FROM`,
		`\n0 golden running next +factory +emulator +1\.0\.0 +[0-9a-f]{8} +XC7A200T +- +- +- +- `,
		`\n1 +try +- +2\.0\.0 +[0-9a-f]{8} +XC7A200T +\d+ +[0-9a-f]{12} +5 +next\.spl `,
		`\n2 +empty +- +- +- +- +- +- +- +- `,
		`\nruns: emulator 1\.0\.0 on board 1, IDCODE 13636093 XC7A200T\nrollback floor: \d+\nsensors: 45\.0 °C, no alarm\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(text.String()) {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
	_, err = planned(t, s, Request{File: signed(5, 9, image), Slot: 2, Keys: r.Keys})
	if f := failure(t, err); f.Exit != 6 || !strings.Contains(f.Why, "board 9") {
		t.Errorf("another board's: %+v", f)
	}
	bit := withHeader(t, "top", "7a200tfbg484", image)
	_, err = planned(t, s, Request{File: signed(5, 1, bit), Slot: 2, Keys: r.Keys})
	if f := failure(t, err); f.Exit != 6 || !strings.Contains(f.What, "holds a file, not the bytes of a slot") {
		t.Errorf("a payload with a header: %+v", f)
	}
}

// TestCancel ends a load between two sectors. What it says is how to go on, and the same load does.
func TestCancel(t *testing.T) {
	s, _ := emulated(t, nil)
	image := stream(t, 2, 4*sector)
	r := Request{File: save(t, "next.bin", image), Slot: 1, Unsigned: true}

	// While the flash is compared, nothing is changed.
	ctx, cancel := context.WithCancel(t.Context())
	img, err := ReadImage(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Plan(ctx, s, img, r, func(program.Event) { cancel() })
	if f := failure(t, err); !errors.Is(err, context.Canceled) || f.Exit != 1 || !strings.Contains(f.Why, "nothing was changed") {
		t.Errorf("while comparing: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	var events []program.Event
	err = Run(ctx, mustPlan(t, s, r), func(e program.Event) {
		if events = append(events, e); e.Done >= 2*sector {
			cancel()
		}
	})
	f := failure(t, err)
	if f.Exit != 1 || !strings.Contains(f.Why, "stopped after 2 of 4 sectors; there is no image in slot 1 now, so a boot of it falls back to golden; run the same command again to go on") {
		t.Errorf("got %+v", f)
	}
	if !slices.IsSortedFunc(events, func(a, b program.Event) int { return int(a.Done - b.Done) }) || events[0].Total != 4*sector || events[0].ETA <= 0 {
		t.Errorf("events are %+v", events)
	}
	l, err := Look(t.Context(), s)
	if err != nil || l.Slots[1].State != program.Writing || !strings.Contains(listed(l), "writing") {
		t.Errorf("slot 1 is %+v, %v", l.Slots[1], err)
	}
	p := mustPlan(t, s, r)
	var text strings.Builder
	Describe(&text, p)
	if !p.Resumes || p.Written != 2 || p.Write != 2 || p.Skip != 2 || !strings.Contains(text.String(), "goes on with a load that was cut short after 2 sectors\n") {
		t.Errorf("got\n%s", text.String())
	}
	if err := Run(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, slot1, len(image)); !bytes.Equal(got, image) {
		t.Error("the flash does not hold the image")
	}
}

func listed(l *List) string {
	var b strings.Builder
	l.Text(&b)
	return b.String()
}

// TestReadback reads a slot with a record, one without, a range and the records.
func TestReadback(t *testing.T) {
	s, _ := emulated(t, nil)
	image := stream(t, 2, 2*sector+400)
	mustLoad(t, s, Request{File: save(t, "next.bin", image), Slot: 1, Unsigned: true})
	quiet := func(program.Event) {}
	c, b, err := Readback(t.Context(), s, 1, quiet)
	if err != nil || !bytes.Equal(b, image) || c.Recorded != c.SHA256 || c.SHA256 != sum(image) || c.Offset != slot1 || c.Ends != "at the recorded length" {
		t.Errorf("slot 1: %+v, %v", c, err)
	}
	var events []program.Event
	c, b, err = ReadRange(t.Context(), s, slot1+sector-3, sector+7, func(e program.Event) { events = append(events, e) })
	if err != nil || !bytes.Equal(b, image[sector-3:][:sector+7]) || c.Slot != -1 || c.Recorded != "" || c.Offset != slot1+sector-3 {
		t.Errorf("a range: %+v, %v", c, err)
	}
	if len(events) != 2 || events[1].Done != sector+7 || events[1].Total != sector+7 {
		t.Errorf("events are %+v", events)
	}
	var text strings.Builder
	c.Text(&text)
	if want := "flash: 65543 bytes from 0x100fffd, ended where it was asked to, SHA-256 "; !strings.HasPrefix(text.String(), want) {
		t.Errorf("got %s", text.String())
	}
	c, b, err = ReadRecords(t.Context(), s, quiet)
	if err != nil || len(b) != 2*sector || c.Offset != 48<<20 || !bytes.Contains(b, []byte("next.bin")) {
		t.Errorf("the records: %+v, %v", c, err)
	}
	for _, x := range []struct{ at, n uint32 }{{0, 0}, {64 << 20, 1}, {64<<20 - 1, 2}, {1<<32 - 1, 1<<32 - 1}} {
		if _, _, err := ReadRange(t.Context(), s, x.at, x.n, quiet); failure(t, err).Exit != control.ExitUsage {
			t.Errorf("%d bytes at %#x: %v", x.n, x.at, err)
		}
	}
	_, _, err = Readback(t.Context(), s, 2, quiet)
	if f := failure(t, err); f.Exit != 6 || f.What != "slot 2 is not read" || !strings.Contains(f.Why, "its first sector is blank") {
		t.Errorf("an empty slot: %+v", f)
	}
	_, _, err = Readback(t.Context(), s, 3, quiet)
	if f := failure(t, err); f.Exit != 6 || !strings.Contains(f.Why, "slots 0 to 2, not 3") {
		t.Errorf("no such slot: %+v", f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := ReadRange(ctx, s, 0, 3*sector, func(program.Event) { cancel() }); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "after 65536 of 196608 bytes") {
		t.Errorf("stopped: %v", err)
	}
}

// TestBusy lets in one loader at a time.
func TestBusy(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "card.sock")
	unlock, err := lock(socket + ".load")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Card: open.VFIOUser + ":" + socket, Socket: filepath.Join(dir, "none.sock"), Write: true}
	_, err = Open(t.Context(), cfg)
	if f := failure(t, err); f.Exit != control.ExitBusy || !strings.Contains(f.Why, "another load is writing this card's flash") {
		t.Errorf("got %+v", f)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), cfg)
	if f := failure(t, err); f.Exit != control.ExitNoCard { // the next hindrance
		t.Errorf("got %+v", f)
	}
	if _, err := os.Stat(socket + ".load"); err != nil {
		t.Errorf("the file was removed, which lets two in: %v", err)
	}
	link := filepath.Join(dir, "link.load")
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	if _, err := lock(link); err == nil {
		t.Error("a lock goes through a symbolic link")
	}
}

// TestOpenEmulator opens a card of its own, says so, and needs no lock for it.
func TestOpenEmulator(t *testing.T) {
	var notes []string
	s, err := Open(t.Context(), Config{Card: "emu", Socket: filepath.Join(t.TempDir(), "none.sock"), Write: true, Note: func(n string) { notes = append(notes, n) }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Look(t.Context(), s)
	if err != nil || len(l.Slots) != 3 || l.Sensors == nil {
		t.Errorf("got %+v, %v", l, err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "a fresh emulated card") {
		t.Errorf("notes are %q", notes)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSeconds(t *testing.T) {
	for s, want := range map[float64]string{0: "0.1s", 0.18: "200ms", 9.96: "10s", 75.4: "1m15s"} {
		if got := seconds(s); got != want {
			t.Errorf("%v: got %s, wanted %s", time.Duration(s*1e9), got, want)
		}
	}
}

// TestNoCardToWrite: a card that nobody named and that ends with the command is not written; the card process that a runtime
// has left behind is named.
func TestNoCardToWrite(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Socket: filepath.Join(dir, "rt.sock"), Machine: open.Machine{Root: dir}, Write: true}
	_, err := Open(t.Context(), cfg)
	if f, ok := errors.AsType[*control.Failure](err); !ok || f.Exit != control.ExitRefused || !strings.Contains(f.Do, "card serve") {
		t.Errorf("%v", err)
	}
	left := filepath.Join(dir, "rt.card.sock")
	ln, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = Open(t.Context(), cfg)
	if f, ok := errors.AsType[*control.Failure](err); !ok || !strings.Contains(f.Do, left) {
		t.Errorf("%v does not name %s", err, left)
	}
	cfg.Write = false
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestListEscapes: what a file was called cannot draw a row of its own.
func TestListEscapes(t *testing.T) {
	var out strings.Builder
	l := List{Slots: []Listed{{Slot: 1, SlotRecord: program.SlotRecord{State: program.Try, Source: "x\x1b]0;y\a\n2\tgood"}}}}
	l.Text(&out)
	if strings.ContainsAny(out.String(), "\x1b\a") || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("%q", out.String())
	}
}
