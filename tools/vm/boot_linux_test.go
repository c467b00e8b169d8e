package vm

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"splicenic/emu/image"
	"splicenic/regs"
)

// TestBoot: a card on a bus is loaded and booted through the guest's kernel: it leaves the bus and comes back with another
// image; with one that is no good it comes back with the image it had. At last a runtime boots it between two services.
func TestBoot(t *testing.T) {
	for _, name := range []string{Linux612, LinuxIOMMUFD} {
		t.Run(name, func(t *testing.T) {
			k := kernel(t, name)
			n := newNetwork(t)
			ctx := bounded(t, 10*time.Minute)
			ctx, wired := n.serveProcess(ctx, "boots")
			m := boot(ctx, t, k, wired)
			bind(ctx, t, m, k, firstCard)
			p := image.Params{Name: "next", Version: image.Version{2, 0, 1}, DataPathDigest: regs.DataPathDigest, UserCode: 7}
			b, err := image.EncodeBit(p, image.Options{Bytes: 70_000}, "2026/01/02", "03:04:05")
			must(t, err)
			must(t, m.Put(ctx, "/next.bit", b))
			p.DataPathDigest ^= 1 << 16
			b, err = image.EncodeBit(p, image.Options{}, "2026/01/02", "03:04:05")
			must(t, err)
			must(t, m.Put(ctx, "/older.bit", b))

			g := &bootedGuest{t: t, m: m, card: []string{"--card", "vfio:" + firstCard, "--transport", transport(k)}}
			g.runs(ctx, 0)
			t.Log(g.ctl(ctx, 0, "load", "/next.bit", "--unsigned"))
			t.Log(g.ctl(ctx, 0, "boot", "1"))
			g.runs(ctx, 1)
			t.Log(g.ctl(ctx, 6, "boot", "2")) // it is blank
			t.Log(g.ctl(ctx, 0, "load", "/older.bit", "--unsigned", "--slot", "2"))
			if out := g.ctl(ctx, 1, "boot", "2"); !strings.Contains(out, "slot 1 runs, not slot 2") {
				t.Errorf("boot of an image with another register map:\n%s", out)
			} else {
				t.Log(out)
			}
			g.runs(ctx, 1)
			guestTests(ctx, t, m, k, []string{"SPLICE_GUEST_CARD=" + firstCard}, "-test.run=TestConformance/(register|window|dma|interrupt)")

			r := &service{t: t, m: m, args: []string{"-c", file, "--transport", transport(k)}}
			r.write(ctx, photos[0])
			t.Cleanup(func() {
				if t.Failed() && r.cmd != nil {
					t.Logf("splicectl run:\n%s", r.cmd.Output())
				}
			})
			r.start(ctx)
			g.card = nil // the runtime has it
			fetch := func() {
				t.Helper()
				if got, err := n.curl(ctx, "img.example", "http://"+vip+"/photos/#.jpg", 20); err != nil || got["gamma"] != 20 {
					t.Errorf("photos: %v, %v", got, err)
				}
			}
			fetch()
			t.Log(g.ctl(ctx, 0, "load", "/next.bit", "--unsigned", "--slot", "2"))
			if out := g.ctl(ctx, 6, "boot", "2"); !strings.Contains(out, "--live") {
				t.Errorf("boot under a runtime without --live:\n%s", out)
			}
			fetch()
			t.Log(g.ctl(ctx, 0, "boot", "2", "--live"))
			g.runs(ctx, 2)
			fetch()
			r.stop(ctx)
		})
	}
}

// A bootedGuest is a guest whose card is given images.
type bootedGuest struct {
	t    *testing.T
	m    *Machine
	card []string // how splicectl finds it
}

// ctl runs splicectl bitstream and expects it to end with an exit code.
func (g *bootedGuest) ctl(ctx context.Context, want int, args ...string) string {
	g.t.Helper()
	argv := append(append([]string{"/bin/splicectl", "bitstream"}, args...), g.card...)
	begin := time.Now()
	exit, out, err := g.m.Run(ctx, Options{Timeout: 3 * time.Minute}, argv...)
	if err != nil || exit != want {
		g.t.Fatalf("guest: %s: exit code %d, want %d, %v\n%s", strings.Join(argv, " "), exit, want, err, out)
	}
	return strings.Join(args, " ") + " took " + time.Since(begin).Round(time.Millisecond).String() + ":\n" + strings.TrimSpace(out)
}

// runs expects a slot's image to run.
func (g *bootedGuest) runs(ctx context.Context, want int) {
	g.t.Helper()
	argv := append([]string{"/bin/splicectl", "bitstream", "list", "-o", "json"}, g.card...)
	exit, out, err := g.m.Run(ctx, Options{Timeout: time.Minute}, argv...)
	var list struct {
		Slots []struct {
			Slot    int
			Running bool
		}
	}
	if e := json.NewDecoder(strings.NewReader(out)).Decode(&list); e != nil || err != nil || exit != 0 {
		g.t.Fatalf("guest: splicectl bitstream list: exit code %d, %v, %v\n%s", exit, err, e, out)
	}
	for _, s := range list.Slots {
		if s.Running != (s.Slot == want) {
			g.t.Fatalf("slot %d runs: %v, want slot %d\n%s", s.Slot, s.Running, want, out)
		}
	}
}
