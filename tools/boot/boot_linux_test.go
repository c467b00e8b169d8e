package boot

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"splicenic/bitstream/program"
	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/flash"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
	runtimeflash "splicenic/runtime/flash"
	"splicenic/tools/card"
	"splicenic/tools/open"
)

func geometry() emu.Geometry {
	return emu.Geometry{Pages: 1024, Heads: 64, CamClientWords: 4096, CamServerWords: 8192, Listeners: 16, Services: 16, Groups: 16, Servers: 16,
		NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 256, Slots: 16, LocalPorts: 4096}
}

// params is a good image of a name.
func params(name string, version uint32) image.Params {
	return image.Params{Name: name, Version: image.Version{version, 0, 0}, UserCode: version, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry(geometry())}
}

func encode(t *testing.T, p image.Params) []byte {
	t.Helper()
	b, err := image.Encode(p, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bench is a card behind a socket, as another process has it.
type bench struct {
	*testing.T
	emu    *emu.Card
	socket string
	cfg    Config
	said   []string
}

func newBench(t *testing.T, slot1, slot2 []byte) *bench {
	t.Helper()
	b := &bench{T: t, socket: filepath.Join(t.TempDir(), "card.sock")}
	var near [2]port.Port
	for i := range near {
		near[i], _ = port.Pair(port.MemConfig{MACs: [2][6]byte{{2, 0, 0, 0, 0, byte(i + 1)}}})
	}
	var err error
	if b.emu, err = emu.New(emu.Config{Client: near[0], Server: near[1], Geometry: geometry()}); err != nil {
		t.Fatal(err)
	}
	b.emu.WithFlash(func(f *flash.Flash) {
		for i, p := range [][]byte{slot1, slot2} {
			for off := 0; off < len(p); off += 256 {
				if _, err := f.Program(uint32((i+1)<<24+off), p[off:min(len(p), off+256)]); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	body := card.Emulated(b.emu)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- body.Serve(ctx, card.Config{Card: "emu", Socket: b.socket}) }()
	for range 1000 {
		if c, err := net.Dial("unix", b.socket); err == nil {
			c.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, body.Close()); err != nil {
			t.Error(err)
		}
	})
	b.cfg = Config{Slot: 1, Choice: open.Choice{Body: open.VFIOUser, Name: b.socket}, Return: 5 * time.Second, Say: func(s string) { b.said = append(b.said, s) }}
	return b
}

func (b *bench) boot() (program.Outcome, error) {
	b.Helper()
	s, err := Sequence(b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	return s.Run(b.Context())
}

// records reads what the card's flash remembers of a slot.
func (b *bench) record(slot int) program.State {
	b.Helper()
	dev, err := open.Open(b.Context(), b.cfg.Choice, open.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	c, err := driver.Open(b.Context(), dev, driver.Config{Shell: true})
	if err != nil {
		b.Fatal(err)
	}
	r, err := program.OpenRecords(b.Context(), runtimeflash.Of(c))
	if err != nil {
		b.Fatal(err)
	}
	return r.Slot(slot).State
}

// at calls f when a step begins.
func (b *bench) at(step string, f func()) {
	say := b.cfg.Say
	b.cfg.Say = func(s string) {
		say(s)
		if s == step {
			f()
		}
	}
}

// loaded records a slot as a load does.
func (b *bench) loaded(slot int, r program.SlotRecord) {
	b.Helper()
	r.State, r.Bytes = program.Try, 1
	b.opened(func(c *driver.Card) {
		records, err := program.OpenRecords(b.Context(), runtimeflash.Of(c))
		if err == nil {
			err = records.Set(b.Context(), slot, r)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

// opened gives f the card while it is open.
func (b *bench) opened(f func(*driver.Card)) {
	b.Helper()
	dev, err := open.Open(b.Context(), b.cfg.Choice, open.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	c, err := driver.Open(b.Context(), dev, driver.Config{Shell: true})
	if err != nil {
		b.Fatal(err)
	}
	f(c)
}

// TestLinkDown: an image under which a link stays down goes, and is to blame only if the image before has the link.
func TestLinkDown(t *testing.T) {
	defer func(d time.Duration) { linkPatience = d }(linkPatience)
	linkPatience = 200 * time.Millisecond
	for _, tt := range []struct {
		name   string
		up     string // the step at which the link is back
		mark   program.State
		advice string
	}{
		{"the cable", "", program.Try, "it is so under slot 0, too, so that slot 1 is not to blame: look at the cable of the server port"},
		{"the image", "boot slot 0", program.Bad, "load another image into slot 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, encode(t, params("one", 1)), nil)
			b.loaded(1, program.SlotRecord{})
			b.at("boot slot 1", func() { b.emu.SetLinkDown(1, true) })
			if tt.up != "" {
				b.at(tt.up, func() { b.emu.SetLinkDown(1, false) })
			}
			out, err := b.boot()
			if err == nil || !strings.Contains(err.Error(), "the link of the server port did not come up") || out.Booted || out.Running != 0 || out.Next != 0 {
				t.Errorf("%v, %+v", err, out)
			}
			if !strings.Contains(out.Advice, tt.advice) {
				t.Errorf("advice %q", out.Advice)
			}
			if got := b.record(1); got != tt.mark {
				t.Errorf("slot 1 is recorded %s, want %s", got, tt.mark)
			}
		})
	}
}

// errEnds is how a host ends in TestHostEnds.
var errEnds = errors.New("the host ends")

// TestHostEnds ends the host at each step of a boot, without a word, and takes the card's power: what comes up then is an
// image that is known to run, and a card that was left alone can be opened and booted again.
func TestHostEnds(t *testing.T) {
	foreign := params("one", 1)
	foreign.DataPathDigest ^= 1
	for _, tt := range []struct {
		name  string
		image image.Params
		steps []string
		after []int // what the next power-on runs
	}{
		{"a good image", params("one", 1), []string{"boot slot 1", "wait for the card", "compare the image with what was expected", "health gate", ""}, []int{0, 0, 0, 0, 1}},
		{"one of another map", foreign, []string{"boot slot 1", "wait for the card", "compare the image with what was expected", "health gate", "record slot 1 bad", "boot slot 0", ""}, []int{0, 0, 0, 0, 0, 0, 0}},
	} {
		for i, step := range tt.steps {
			t.Run(tt.name+"/"+step, func(t *testing.T) {
				b := newBench(t, encode(t, tt.image), nil)
				if step != "" {
					waits := 0
					b.at(step, func() {
						if waits++; waits == 1 {
							panic(errEnds)
						}
					})
				}
				ended := func() (ended bool) {
					defer func() {
						if r := recover(); r != nil {
							if r != any(errEnds) {
								panic(r)
							}
							ended = true
						}
					}()
					_, _ = b.boot()
					return false
				}()
				if ended != (step != "") {
					t.Fatalf("ended %v; said %q", ended, b.said)
				}
				if err := b.emu.PowerCycle(); err != nil {
					t.Fatal(err)
				}
				b.opened(func(c *driver.Card) {
					st, err := c.BootState()
					if err != nil || int(st.Slot) != tt.after[i] || int(st.Next) != tt.after[i] || c.Mismatch() != nil {
						t.Errorf("after power-on: %+v, %v, %v; want slot %d", st, err, c.Mismatch(), tt.after[i])
					}
				})
				b.cfg.Say = nil
				b.cfg.Slot = 0
				if out, err := b.boot(); err != nil || !out.Booted {
					t.Errorf("another boot: %v, %+v", err, out)
				}
			})
		}
	}
}

// TestBoot boots a good image, another one after it, and golden again.
func TestBoot(t *testing.T) {
	b := newBench(t, encode(t, params("one", 1)), encode(t, params("two", 2)))
	for i, slot := range []int{1, 2, 2, 0} {
		name := []string{"emulator", "one", "two"}[slot]
		b.cfg.Slot, b.cfg.Expect.Name = slot, name
		out, err := b.boot()
		if err != nil {
			t.Fatal(err)
		}
		if !out.Booted || out.Running != slot || out.Next != slot || out.Identity.Name != name || out.Previous != []int{0, 1, 2, 2}[i] {
			t.Errorf("slot %d: %+v, %+v", slot, out, out.Identity)
		}
		if got := b.record(slot); slot > 0 && got != program.Good {
			t.Errorf("slot %d is recorded %s", slot, got)
		}
	}
	if said := strings.Join(b.said, "\n"); !strings.Contains(said, "no port above it") || !strings.Contains(said, "nothing to drain") || !strings.Contains(said, "health gate") {
		t.Errorf("said %s", said)
	}
}

// TestGoldenCounts: an image that was loaded into the golden slot is recorded good when it ran, and its counter is the floor.
func TestGoldenCounts(t *testing.T) {
	b := newBench(t, nil, nil)
	b.loaded(0, program.SlotRecord{State: program.Try, Version: "1.0.0", Rollback: 3, Signed: true})
	b.opened(func(c *driver.Card) {
		s := session{runtimeflash.Of(c), nil}
		if err := mark(t.Context(), s, 0, true); err != nil {
			t.Fatal(err)
		}
		r, err := program.OpenRecords(t.Context(), s)
		if err != nil || r.Slot(0).State != program.Good || r.Floor() != 3 {
			t.Errorf("%v: golden is %s, floor %d; want good, 3", err, r.Slot(0).State, r.Floor())
		}
	})
}

// TestBootRefused: what is not well goes back to what was, is recorded bad, and the reason is told.
func TestBootRefused(t *testing.T) {
	good := params("one", 1)
	foreign, smaller := good, good
	foreign.DataPathDigest ^= 1
	smaller.Geometry.Servers = 1 // the canary needs two
	bad := encode(t, good)
	for at := 64; ; at++ { // the first bit that the checksum covers
		bad[at] ^= 1
		if _, failed, _ := image.Load(bytes.NewReader(bad), 0x13636093); failed == regs.ConfigurationBootStatusErrorCrc {
			break
		}
		bad[at] ^= 1
	}
	for _, tt := range []struct {
		name   string
		image  []byte
		change func(*bench)
		why    string
		mark   program.State
	}{
		{"blank", nil, nil, "slot 1 is empty", program.Empty},
		{"no image", []byte("no image at all"), nil, "slot 1 did not load: no_sync; the card fell back to slot 0", program.Bad},
		{"a bit flipped", bad, nil, "slot 1 did not load: crc", program.Bad},
		{"foreign data path", encode(t, foreign), nil, "this release cannot drive it", program.Bad},
		{"another version", encode(t, good), func(b *bench) { b.cfg.Expect.Version = "2.0.0" }, "version 1.0.0 instead of 2.0.0", program.Bad},
		{"canary", encode(t, smaller), nil, "canary: write tables", program.Bad},
		{"hot", encode(t, good), func(b *bench) {
			b.at("boot slot 1", func() { b.emu.SetSensors(emu.Sensors{Temperature: 99_000, Vccint: 1000, Vccaux: 1800}) })
		}, "sensor alarm: it has 99.0 °C", program.Bad},
		{"hot before", encode(t, good), func(b *bench) { b.emu.SetSensors(emu.Sensors{Temperature: 99_000, Vccint: 1000, Vccaux: 1800}) }, "temperature alarm is set, at 99.0 °C", program.Empty},
		{"another version than was loaded", encode(t, good), func(b *bench) { b.loaded(1, program.SlotRecord{Version: "1.0.1"}) }, "version 1.0.0 instead of 1.0.1", program.Bad},
		{"another map than was loaded", encode(t, good), func(b *bench) { b.loaded(1, program.SlotRecord{DataPathDigest: 1}) }, "instead of 0x00000001", program.Bad},
		{"stuck register", encode(t, good), func(b *bench) { b.emu.Stick(regs.ControlScratch, 1<<7, 0) }, "control.scratch holds 0x7fffff7e after 0x7ffffffe", program.Bad},
		{"lost interrupts", encode(t, good), func(b *bench) { b.emu.LoseInterrupts(driver.VectorEvent, 1000) }, "interrupt vector 1 was raised and did not arrive", program.Bad},
		{"no such slot", nil, func(b *bench) { b.cfg.Slot = 3 }, "slots 0 to 2", program.Empty},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.image, nil)
			if tt.change != nil {
				tt.change(b)
			}
			out, err := b.boot()
			if err == nil || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v", err)
			}
			if out.Booted || !out.Answers || out.Running != 0 || out.Next != 0 || out.Identity.Name != "emulator" || out.Why == "" {
				t.Errorf("outcome %+v, %+v", out, out.Identity)
			}
			if tt.mark != program.Empty && (out.Advice == "" || !strings.Contains(err.Error(), "golden runs")) {
				t.Errorf("advice %q; %v", out.Advice, err)
			}
			if got := b.record(1); got != tt.mark {
				t.Errorf("slot 1 is recorded %s", got)
			}
		})
	}
}

// TestNotBack: a card that stays off its bus is told to be, with what to do.
func TestNotBack(t *testing.T) {
	b := newBench(t, encode(t, params("one", 1)), nil)
	b.cfg.Return = 200 * time.Millisecond
	b.cfg.Say = func(s string) {
		if s == "wait for the card" {
			b.emu.Lose()
		}
	}
	out, err := b.boot()
	if !errors.Is(err, program.ErrNotBack) || !errors.Is(err, device.ErrDeviceLost) || out.Answers || !strings.Contains(out.Advice, "tries slot 0, and golden") {
		t.Errorf("%v, %+v", err, out)
	}
}

// TestInProcess: a card of this process is opened again and again, and stays the caller's.
func TestInProcess(t *testing.T) {
	c, err := open.Open(t.Context(), open.Choice{Body: open.Emulator}, open.Config{Geometry: geometry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	s, err := Sequence(Config{Slot: 0, Card: c})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Run(t.Context()); err != nil || !out.Booted {
		t.Errorf("%v, %+v", err, out)
	}
	if err := c.Renew(); err != nil {
		t.Fatal(err)
	}
	if v := c.Load32(device.Bar0, uint64(regs.DirectoryMagic)); v != regs.Magic {
		t.Errorf("magic %#x", v)
	}
	cancel()
	if err := errors.Join(<-done, c.Close()); err != nil {
		t.Error(err)
	}
}

// TestSiblings: a card that shares its port with others is not booted.
func TestSiblings(t *testing.T) {
	root := t.TempDir()
	at := filepath.Join(root, "sys/devices/pci0000:64/0000:64:00.0")
	for _, a := range []string{"0000:65:00.0", "0000:65:00.1"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(at, a), 0o755), os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755),
			os.Symlink(filepath.Join(at, a), filepath.Join(root, "sys/bus/pci/devices", a))); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Sequence(Config{Choice: open.Choice{Body: open.VFIO, Name: "0000:65:00.0"}, Open: open.Config{Machine: open.Machine{Root: root}}})
	if err == nil || !strings.Contains(err.Error(), "0000:65:00.1") {
		t.Errorf("error %v", err)
	}
}
