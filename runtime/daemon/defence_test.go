package daemon_test

import (
	"context"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// TestDefence: a service with defence always is served by cookies; the marks are in the card, after a reset too; and a
// segment without page or cookie is not reset, by nobody.
func TestDefence(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080")
	c := r.client("198.18.0.10")
	r.apply(edit(t, web, "    default: app", "    default: app\n    defence: always") + "defence: {rate_on: 777, rate_off: 77}\n")
	r.run(5 * time.Millisecond)
	marks := func() {
		t.Helper()
		for reg, want := range map[regs.Reg]uint32{
			regs.DefencePagesOn: small.Pages / 8, regs.DefencePagesOff: small.Pages / 4, regs.DefenceRateOn: 777, regs.DefenceRateOff: 77, regs.DefenceSourceRate: 0,
		} {
			if got := r.card.Load(reg); got != want {
				t.Errorf("%s is %d, want %d", reg.Name(), got, want)
			}
		}
	}
	marks()
	if got := c.fetch("198.18.0.80:80", "x", "/"); got != "198.18.1.11:8080" {
		t.Errorf("answered by %q", got)
	}
	if sent, valid := r.card.Load(regs.DefenceCookieSent), r.card.Load(regs.DefenceCookieValid); sent != 1 || valid != 1 {
		t.Errorf("%d cookies sent, %d came back", sent, valid)
	}
	if err := r.d.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.run(5 * time.Millisecond)
	marks()

	// The page goes, and with it all that is known of the connection.
	conn := c.get("198.18.0.80:80", "x", "/")
	c.requests[conn.Tag] = "GET / HTTP"
	r.until("connection", 5*time.Second, func() bool { return conn.State() == tcppeer.Open })
	r.run(5 * time.Millisecond)
	if err := r.d.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.run(5 * time.Millisecond)
	conn.Write([]byte("/1.1\r\nHost: x\r\n\r\n"))
	r.run(50 * time.Millisecond)
	if c.reset != 0 || conn.State() != tcppeer.Open {
		t.Errorf("the client was reset: state %v", conn.State())
	}
	if got := r.card.Load(regs.DefenceCookieBad); got == 0 {
		t.Error("cookie_bad did not count")
	}
	if got := r.card.Load(regs.ParserExceptionNoMatch); got != 0 {
		t.Errorf("%d segments given to the host", got)
	}
}
