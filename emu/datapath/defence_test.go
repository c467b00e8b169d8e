package datapath

import (
	"net/netip"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// spend leaves no source a token.
func (b *bench) spend() {
	b.r.Set(regs.DefenceSourceRate, 1)
	b.r.Set(regs.DefenceSourceBurst, 0)
}

// flood sends SYNs of other clients, each once.
func (b *bench) flood(n int) {
	b.t.Helper()
	for range n {
		b.ports++
		w := world4
		w.client = netip.AddrFrom4([4]byte{203, 0, byte(b.ports >> 8), byte(b.ports)})
		b.push(0, (&conn{b: b, w: w, port: 50000, cseq: uint32(b.ports)}).client(flagSYN, "", optMSS(1460)))
	}
}

// auto is a bench with defence auto and the given marks; its pages are 256.
func auto(t *testing.T, pagesOn, pagesOff, rateOn, rateOff uint32) *bench {
	t.Helper()
	b := guarded(t, regs.ServiceEntry{ControlDefence: regs.ServiceControlDefenceAuto})
	for _, x := range []struct {
		r regs.Reg
		v uint32
	}{{regs.DefencePagesOn, pagesOn}, {regs.DefencePagesOff, pagesOff}, {regs.DefenceRateOn, rateOn}, {regs.DefenceRateOff, rateOff}, {regs.DefenceCalm, 3000}} {
		b.r.Set(x.r, x.v)
	}
	return b
}

func (b *bench) active() bool { return regs.DefenceStatusActive(b.r.Get(regs.DefenceStatus)) != 0 }

func (b *bench) wantActive(want bool, on, off uint32) {
	b.t.Helper()
	if b.active() != want || b.r.Get(regs.DefenceSwitchedOn) != on || b.r.Get(regs.DefenceSwitchedOff) != off {
		b.t.Fatalf("active %v, switched on %d times and off %d; want %v, %d, %d", b.active(), b.r.Get(regs.DefenceSwitchedOn), b.r.Get(regs.DefenceSwitchedOff), want, on, off)
	}
}

// TestAutoByRate: one SYN too many in a second switches on, in the middle of that second; while the rate stays above the
// lower mark the stage stays; it ends when the rate was low for as long as calm says.
func TestAutoByRate(t *testing.T) {
	b := auto(t, 0, 0, 50, 10)
	b.wait(time.Second)
	b.flood(50)
	b.wantActive(false, 0, 0)
	b.flood(1)
	b.wantActive(true, 1, 0)
	if got := b.r.Get(regs.HostifCause) & regs.HostifCauseDefenceMask; got == 0 {
		t.Error("no cause raised")
	}
	if got := b.r.Get(regs.DefenceCookieSent); got != 1 {
		t.Errorf("%d cookies, want the SYN that was too many to get the first", got)
	}
	taken := b.m.Geometry.Pages - b.r.Get(regs.AmuFree)
	b.flood(500)
	if got := b.m.Geometry.Pages - b.r.Get(regs.AmuFree); got != taken || taken != 50 {
		t.Errorf("the flood holds %d pages, %d before", got, taken)
	}
	for range 8 { // between the marks: stays on however long
		b.wait(time.Second)
		b.flood(11)
	}
	b.wantActive(true, 1, 0)
	for range 2 { // calm, but not for long enough
		b.wait(time.Second)
		b.flood(10)
	}
	b.wantActive(true, 1, 0)
	b.wait(time.Second)
	b.flood(11)
	for range 3 {
		b.wait(time.Second)
	}
	b.wantActive(true, 1, 0)
	b.wait(2 * time.Second)
	b.wantActive(false, 1, 1)
	for range 4 { // between the marks: stays off
		b.wait(time.Second)
		b.flood(49)
	}
	b.wantActive(false, 1, 1)
}

// TestAutoByRepeats: SYNs of a half-open connection that repeat are pressure like others.
func TestAutoByRepeats(t *testing.T) {
	b := auto(t, 0, 0, 50, 10)
	b.wait(time.Second)
	c := &conn{b: b, w: world4, port: 40001, cseq: 5}
	for range 50 {
		b.push(0, c.client(flagSYN, ""))
	}
	b.wantActive(false, 0, 0)
	b.push(0, c.client(flagSYN, ""))
	b.wantActive(true, 1, 0)
}

// TestAutoByPages: too few free pages switch on, and only more of them than the second mark let it end.
func TestAutoByPages(t *testing.T) {
	b := auto(t, 200, 220, 0, 0)
	for _, r := range []regs.Reg{regs.TimerSynRcvd, regs.TimerRetransmit} { // half-open pages stay until told otherwise
		b.r.Set(r, 1<<28-1)
	}
	b.flood(256 - 200)
	b.wantActive(false, 0, 0)
	b.flood(1) // counts as it is answered: the page it takes is one too many for the next
	b.flood(1)
	b.wantActive(true, 1, 0)
	if got := b.r.Get(regs.AmuFree); got != 199 {
		t.Errorf("%d pages free, want 199", got)
	}
	free := func(n uint32) {
		for i := range b.m.Geometry.Pages {
			if w := b.c.page(i); n > 0 && regs.PageControlValid(w[regs.PageControl]) != 0 {
				b.c.abort(i, w, reasonHost)
				n--
			}
		}
	}
	free(20)
	b.wait(10 * time.Second)
	b.wantActive(true, 1, 0) // 219
	free(1)
	b.wait(2900 * time.Millisecond)
	b.wantActive(true, 1, 0)
	b.wait(200 * time.Millisecond)
	b.wantActive(false, 1, 1)
}

// TestAutoAtReset: the marks a card has after a reset do not switch anything on, however few pages it has.
func TestAutoAtReset(t *testing.T) {
	b := guarded(t, regs.ServiceEntry{ControlDefence: regs.ServiceControlDefenceAuto})
	b.r.Set(regs.TimerSynRcvd, 1<<28-1)
	b.flood(256)
	b.wait(3 * time.Second)
	b.wantActive(false, 0, 0)
	if got := b.r.Get(regs.DefenceCookieSent); got != 0 {
		t.Errorf("%d cookies", got)
	}
}

// TestWindowOfSilence: while cookies are in force, and two periods after the last, a segment that has neither page nor
// cookie gets no answer from anybody. Before and after, and of a service without defence, the host answers.
func TestWindowOfSilence(t *testing.T) {
	for _, tt := range []struct {
		name  string
		mode  uint32
		sent  time.Duration // since the last cookie; negative: none was sent
		given int
	}{
		{"always, no cookie sent", regs.ServiceControlDefenceAlways, -1, 0},
		{"auto, no cookie sent", regs.ServiceControlDefenceAuto, -1, 1},
		{"auto, at once", regs.ServiceControlDefenceAuto, 0, 0},
		{"auto, two periods later", regs.ServiceControlDefenceAuto, 128 * time.Second, 0},
		{"auto, later", regs.ServiceControlDefenceAuto, 128*time.Second + time.Millisecond, 1},
		{"off, at once", regs.ServiceControlDefenceOff, 0, 1},
		{"always, later", regs.ServiceControlDefenceAlways, 200 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := guarded(t, everything())
			b.attach()
			b.r.Set(regs.TimerInterval, 1000)
			if tt.sent >= 0 {
				b.flood(1)
				b.serve(world4, 0, regs.ServiceEntry{ControlDefence: tt.mode})
				b.wait(tt.sent)
			}
			b.serve(world4, 0, regs.ServiceEntry{ControlDefence: tt.mode})
			given := 0
			for _, flags := range []uint8{flagACK, flagACK | flagPSH, flagACK | flagFIN, flagRST, flagSYN | flagACK} {
				c := &conn{b: b, w: world4, port: 40001, cseq: 777, cack: 888}
				payload := ""
				if flags&flagPSH != 0 {
					payload = request
				}
				if out := b.push(0, c.client(flags, payload)); len(out[0])+len(out[1]) != 0 {
					t.Errorf("flags %#x answered: %v", flags, out)
				}
				given += len(b.exceptions())
			}
			if given != 5*tt.given {
				t.Errorf("%d of 5 given to the host, want %d", given, 5*tt.given)
			}
			if got := b.r.Get(regs.DefenceCookieBad); got != uint32(5*(1-tt.given)) {
				t.Errorf("cookie_bad is %d", got)
			}
		})
	}
}

// TestCookieOutlivesMode: who was answered with a cookie is let in when the stage has ended meanwhile, or the service has
// no defence any more.
func TestCookieOutlivesMode(t *testing.T) {
	for _, mode := range []uint32{regs.ServiceControlDefenceOff, regs.ServiceControlDefenceAuto} {
		b := guarded(t, everything())
		c := &conn{b: b, w: world4, port: 40001, cseq: 5}
		c.cack = one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[0]).seq + 1
		p := everything()
		p.ControlDefence = mode
		b.serve(world4, 0, p)
		b.push(0, c.client(flagACK, ""))
		if got := b.r.Get(regs.DefenceCookieValid); got != 1 {
			t.Errorf("mode %d: %d valid cookies, want 1", mode, got)
		}
	}
}

// TestSecretsRotate: an epoch has the secret that follows from its number, and a card that slept through several has the
// same as one that did not.
func TestSecretsRotate(t *testing.T) {
	a, z := guarded(t, everything()), guarded(t, everything())
	a.r.Set(regs.TimerInterval, 10_000)
	seen := map[[2]uint64]bool{}
	for range 5 {
		if seen[a.c.secrets[0]] {
			t.Error("a secret repeats")
		}
		seen[a.c.secrets[0]] = true
		before := a.c.secrets[0]
		a.wait(64 * time.Second)
		if a.c.secrets[1] != before {
			t.Error("the secret before is not the one that was in force")
		}
	}
	z.now = a.now
	z.c.Advance(z.now)
	if a.c.secrets != z.c.secrets || a.r.Get(regs.DefenceEpoch) != 5 || z.r.Get(regs.DefenceEpoch) != 5 || a.r.Get(regs.DefenceEpochBegin) != z.r.Get(regs.DefenceEpochBegin) {
		t.Errorf("epochs %d and %d", a.r.Get(regs.DefenceEpoch), z.r.Get(regs.DefenceEpoch))
	}
	if got := a.r.Get(regs.DefenceEpochBegin); got != 5*64_000 {
		t.Errorf("epoch began at %d", got)
	}
}

// TestQuarantineUnderDefence: a newer SYN of a client port in quarantine is answered with a cookie, and its proof takes a
// page of its own.
func TestQuarantineUnderDefence(t *testing.T) {
	b, c := stage(t, Quarantine, ClientSide)
	b.serve(world4, 0, regs.ServiceEntry{ControlDefence: regs.ServiceControlDefenceAlways})
	c.cseq += 1000
	sa := one(t, b.push(0, c.client(flagSYN, "", optMSS(1460)))[0])
	if got := b.r.Get(regs.AmuFree); got != b.m.Geometry.Pages {
		t.Errorf("%d pages free, want all", got)
	}
	c.cack = sa.seq + 1
	b.push(0, c.client(flagACK, ""))
	if b.state(c) != WaitHead || b.r.Get(regs.DefenceCookieValid) != 1 {
		t.Errorf("state %d", b.state(c))
	}
	b.check(t)
}

// TestSourceRate: a source has its burst, then its rate; IPv6 sources are whole /64 networks; services without defence do
// not ask.
func TestSourceRate(t *testing.T) {
	b := guarded(t, everything())
	b.r.Set(regs.DefenceSourceRate, 10)
	b.r.Set(regs.DefenceSourceBurst, 5)
	answered := func(w world, n int) (got int) {
		for range n {
			b.ports++
			got += len(b.push(0, (&conn{b: b, w: w, port: 1000 + b.ports, cseq: 1}).client(flagSYN, ""))[0])
		}
		return got
	}
	other4, near6, far6 := world4, world6, world6
	other4.client = netip.MustParseAddr("198.18.0.11")
	near6.client, far6.client = netip.MustParseAddr("2001:db8::ffff"), netip.MustParseAddr("2001:db8:0:1::10")
	for _, tt := range []struct {
		name string
		w    world
		wait time.Duration
		want int
	}{
		{"burst", world4, 0, 5}, {"nothing left", world4, 0, 0}, {"another source", other4, 0, 5}, {"IPv6", world6, 0, 5},
		{"the same /64", near6, 0, 0}, {"another /64", far6, 0, 5}, {"one after a tenth", world4, 100 * time.Millisecond, 1},
		{"not yet", world4, 99 * time.Millisecond, 0}, {"the rest", world4, time.Millisecond, 1}, {"all again", world4, time.Hour, 5},
	} {
		b.now += tt.wait
		before := b.r.Get(regs.DefenceSourceLimited)
		if got := answered(tt.w, 7); got != tt.want {
			t.Errorf("%s: %d of 7 answered, want %d", tt.name, got, tt.want)
		}
		if got := b.r.Get(regs.DefenceSourceLimited) - before; got != uint32(7-tt.want) {
			t.Errorf("%s: source_limited grew by %d", tt.name, got)
		}
	}
	b.serve(world4, 0, regs.ServiceEntry{})
	if got := answered(world4, 20); got != 20 {
		t.Errorf("without defence %d of 20 answered", got)
	}
}

// TestCookieAllocatesNothing: neither the SYN nor a bad proof costs memory.
func TestCookieAllocatesNothing(t *testing.T) {
	b := guarded(t, everything())
	c := &conn{b: b, w: world4, port: 40001, cseq: 5}
	syn := c.client(flagSYN, "", optMSS(1460), optSACK, optTS(1, 0), optWscale(7))
	bad := c.client(flagACK, "", optTS(2, 3))
	b.c.Advance(b.now)
	for _, raw := range [][]byte{syn, bad} {
		run := func() {
			for i := range b.buf {
				f := &b.buf[i]
				f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw))
			}
			b.out.Reset()
			b.c.Process(0, b.buf, b.out)
		}
		if got := testing.AllocsPerRun(20, run); got != 0 && !raceEnabled {
			t.Errorf("%v allocations", got)
		}
	}
}
