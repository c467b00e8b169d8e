package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Where a machine's first two cards are: each behind a port of its own.
const (
	firstCard  = "0000:01:00.0"
	secondCard = "0000:02:00.0"
)

// TestConformance runs the tests of package guest on the cards of a machine, after the guest was found to be good for it.
func TestConformance(t *testing.T) {
	for _, x := range []struct {
		kernel string
		two    bool // cards, the second one with buffers next to each other; and a card process beside the card itself
	}{{Linux612, true}, {Linux61, false}, {LinuxIOMMUFD, true}} {
		t.Run(x.kernel, func(t *testing.T) {
			k := kernel(t, x.kernel)
			ctx := bounded(t, 10*time.Minute)
			ctx, first := serve(ctx, t, "first", unwired(1))
			sockets := []string{first}
			if x.two {
				var second string
				ctx, second = serve(ctx, t, "second", unwired(2))
				sockets = append(sockets, second)
			}
			m := boot(ctx, t, k, sockets...)
			bind(ctx, t, m, k, firstCard)
			args := []string{"-test.bench=.", "-test.benchtime=500ms"}
			if !x.two {
				args = append(args, "-test.skip=TestServed")
			}
			guestTests(ctx, t, m, k, []string{"SPLICE_GUEST_CARD=" + firstCard}, args...)
			if x.two {
				bind(ctx, t, m, k, secondCard)
				guestTests(ctx, t, m, k, []string{"SPLICE_GUEST_CARD=" + secondCard, "SPLICE_GUEST_ADJACENT=1"}, "-test.run=TestConformance/(dma|interrupt)")
			}
			doctor(ctx, t, m, k)
		})
	}
}

// transport is how a guest with this kernel reaches its cards.
func transport(k *Kernel) string {
	if k.Name == LinuxIOMMUFD {
		return "iommufd"
	}
	return "type1"
}

// guestTests runs the tests of package guest and expects them to pass.
func guestTests(ctx context.Context, t *testing.T, m *Machine, k *Kernel, env []string, args ...string) {
	t.Helper()
	o := Options{Env: append(env, "SPLICE_GUEST_TRANSPORT="+transport(k)), Timeout: 5 * time.Minute}
	exit, out, err := m.Run(ctx, o, append([]string{"/bin/guest.test", "-test.v"}, args...)...)
	t.Logf("linux %s, %s\n%s", k.Version, strings.Join(env, " "), strings.TrimSpace(out))
	if err != nil || exit != 0 {
		t.Errorf("the tests in the guest ended with exit code %d, %v", exit, err)
	}
}

// splicectl runs it in the guest and expects it to succeed.
func splicectl(ctx context.Context, t *testing.T, m *Machine, args ...string) string {
	t.Helper()
	exit, out, err := m.Run(ctx, Options{Timeout: 2 * time.Minute}, append([]string{"/bin/splicectl"}, args...)...)
	if err != nil || exit != 0 {
		t.Fatalf("guest: splicectl %s: exit code %d, %v\n%s", strings.Join(args, " "), exit, err, out)
	}
	return out
}

// bind gives a card of the guest to vfio-pci, whose driver is none so far.
func bind(ctx context.Context, t *testing.T, m *Machine, k *Kernel, address string) {
	t.Helper()
	listed := func() (driver string, usable bool) {
		var cards []struct {
			Name, Driver string
			Usable       bool
		}
		must(t, json.Unmarshal([]byte(splicectl(ctx, t, m, "card", "list", "-o", "json")), &cards))
		for _, c := range cards {
			if c.Name == "vfio:"+address {
				return c.Driver, c.Usable
			}
		}
		t.Fatalf("splicectl card list has no %s: %v", address, cards)
		return
	}
	if driver, usable := listed(); driver != "" || usable {
		t.Errorf("before card bind: driver %q, usable %v", driver, usable)
	}
	t.Log(strings.TrimSpace(splicectl(ctx, t, m, "card", "bind", address)))
	if driver, usable := listed(); driver != "vfio-pci" || !usable {
		t.Errorf("after card bind: driver %q, usable %v", driver, usable)
	}
}

// doctor expects the guest to lack nothing.
func doctor(ctx context.Context, t *testing.T, m *Machine, k *Kernel) {
	t.Helper()
	exit, out, err := m.Run(ctx, Options{Timeout: 2 * time.Minute}, "/bin/splicectl", "card", "doctor", "--transport", transport(k), "-o", "json")
	var checks []struct{ Name, Status, Number, Why string }
	if e := json.NewDecoder(strings.NewReader(out)).Decode(&checks); e != nil || err != nil || exit != 0 || len(checks) == 0 {
		t.Errorf("splicectl card doctor: exit code %d, %v, %v\n%s", exit, err, e, out)
		return
	}
	var text strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&text, "\n%-36s %-5s %s  %s", c.Name, c.Status, c.Number, c.Why)
		if c.Status == "fail" {
			t.Errorf("splicectl card doctor: %s: %s, %s", c.Name, c.Number, c.Why)
		}
	}
	t.Logf("splicectl card doctor:%s", &text)
}
