package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"splicenic/bitstream/program"
	"splicenic/emu/image"
	"splicenic/regs"
	"splicenic/tools/slots"
)

// bootPatience is how long a command that boots may take: the links are waited for 10 s under each image.
const bootPatience = 2 * time.Minute

// command runs splicectl on the product's socket.
func (p *product) command(args ...string) (said string, exit int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, append(args, "--socket", p.socket)...).CombinedOutput()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.Exited() {
		return string(out), failed.ExitCode()
	}
	if err != nil {
		p.t.Fatalf("splicectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), 0
}

// commandSays runs splicectl and expects an exit code and parts of what it says.
func (p *product) commandSays(exit int, parts []string, args ...string) string {
	p.t.Helper()
	said, got := p.command(args...)
	if got != exit {
		p.t.Errorf("splicectl %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, exit, said)
	}
	for _, part := range parts {
		if !strings.Contains(said, part) {
			p.t.Errorf("splicectl %s does not say %q:\n%s", strings.Join(args, " "), part, said)
		}
	}
	return said
}

// slotsNow is what splicectl bitstream list says.
func (p *product) slotsNow() (l slots.List) {
	p.t.Helper()
	out, err := exec.Command(binary, "bitstream", "list", "-o", "json", "--socket", p.socket).Output()
	must(p.t, err)
	must(p.t, json.Unmarshal(out, &l))
	return l
}

// runs checks which image the card runs.
func (p *product) runs(slot int, name, version string) {
	p.t.Helper()
	l := p.slotsNow()
	if l.Boot.Running != slot || l.Boot.Next != slot || l.Identity.Name != name || l.Identity.Version != version {
		p.t.Errorf("slot %d runs, %q %s, and slot %d is next; want slot %d, %q %s", l.Boot.Running, l.Identity.Name, l.Identity.Version, l.Boot.Next, slot, name, version)
	}
}

// imageFile writes an image of the emulated card.
func (p *product) imageFile(name string, version, dataPath uint32) (path string) {
	p.t.Helper()
	b, err := image.Encode(image.Params{Name: name, Version: image.Version{version, 0, 0}, UserCode: version, DataPathDigest: dataPath}, image.Options{})
	must(p.t, err)
	path = filepath.Join(p.dir, name+".bin")
	must(p.t, os.WriteFile(path, b, 0o644))
	return path
}

// requests are made one after the other, each on its own connection.
type requests struct {
	p        *product
	answered atomic.Int64
	tolerant atomic.Bool // requests may fail now
	stop     context.CancelFunc
	done     sync.WaitGroup
}

func (p *product) traffic() *requests {
	ctx, stop := context.WithCancel(p.t.Context())
	tr := &requests{p: p, stop: stop}
	for _, vip := range []string{"198.18.0.80", "[2001:db8::80]"} {
		tr.done.Go(func() {
			for ctx.Err() == nil {
				tolerant := tr.tolerant.Load()
				if err := p.small(ctx, vip); err == nil {
					tr.answered.Add(1)
				} else if !tolerant && !tr.tolerant.Load() && ctx.Err() == nil {
					p.t.Errorf("request to %s while nothing boots: %v", vip, err)
					return
				}
			}
		})
	}
	return tr
}

// end ends the traffic.
func (tr *requests) end() {
	tr.stop()
	tr.done.Wait()
}

// flows waits until requests are answered, so many more than there were.
func (tr *requests) flows(more int64, patience time.Duration) {
	tr.p.t.Helper()
	from := tr.answered.Load()
	tr.p.await(fmt.Sprintf("%d more requests are answered", more), patience, func() bool { return tr.answered.Load() >= from+more })
}

// small is a request whose answer is short.
func (p *product) small(ctx context.Context, vip string) error {
	c := &http.Client{Transport: &http.Transport{DialContext: p.client.Dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+vip+"/small", nil)
	if err != nil {
		return err
	}
	r, err := c.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && string(b) != smallAnswer {
		err = fmt.Errorf("the answer is %q", b)
	}
	return err
}

const smallAnswer = "it is well\n"

// slowly answers /small at once, and /slow byte by byte until released is closed.
type slowly struct {
	began    chan struct{} // one for each
	released chan struct{}
}

func (s *slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/slow" {
		_, _ = io.WriteString(w, smallAnswer)
		return
	}
	s.began <- struct{}{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.released:
			_, _ = io.WriteString(w, "end")
			return
		case <-r.Context().Done():
			return
		case <-tick.C:
			if _, err := io.WriteString(w, "."); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

// live is a runtime with traffic, whose card will boot.
func live(t *testing.T) (*product, *slowly, *requests) {
	p := start(t, configuration)
	s := &slowly{make(chan struct{}, 8), make(chan struct{})}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = server.Close() })
	for _, a := range []string{"198.18.1.11:80", "[2001:db8:1::11]:80"} {
		ln, err := p.servers.Listen("tcp", a)
		must(t, err)
		go func() { _ = server.Serve(ln) }()
	}
	tr := p.traffic()
	t.Cleanup(tr.end)
	tr.flows(4, 20*time.Second)
	return p, s, tr
}

// slow begins an answer that lasts until it is released, and returns what became of it.
func (p *product) slow(s *slowly) <-chan error {
	p.t.Helper()
	result := make(chan error, 1)
	go func() {
		c := &http.Client{Transport: &http.Transport{DialContext: p.client.Dial, DisableKeepAlives: true}, Timeout: bootPatience}
		r, err := c.Get("http://198.18.0.80/slow")
		if err != nil {
			result <- err
			return
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && !strings.HasSuffix(string(b), ".end") {
			err = fmt.Errorf("the answer ends early, after %d bytes", len(b))
		}
		result <- err
	}()
	select {
	case <-s.began:
	case err := <-result:
		p.t.Fatalf("the slow answer did not begin: %v", err)
	case <-time.After(20 * time.Second):
		p.t.Fatal("the slow answer did not begin within 20 s")
	}
	return result
}

// bootState is how far a boot has come, as the socket says; false: it does not answer.
func (p *product) bootState() (st struct {
	State string
	Slot  int
	Steps []string
}, ok bool) {
	c := &http.Client{Transport: p.transport(), Timeout: 5 * time.Second}
	r, err := c.Get("http://splicenic/v1/boot")
	if err != nil {
		return st, false
	}
	defer r.Body.Close()
	return st, json.NewDecoder(r.Body).Decode(&st) == nil
}

// commandEnd is how a command ended.
type commandEnd struct {
	said string
	exit int
}

// boots has the card boot a slot, in the background.
func (p *product) boots(slot, drain string) <-chan commandEnd {
	booted := make(chan commandEnd, 1)
	go func() {
		text, exit := p.command("bitstream", "boot", slot, "--live", "--drain", drain)
		booted <- commandEnd{text, exit}
	}()
	return booted
}

// TestCaseE21 exchanges the image of a card that carries traffic.
func TestCaseE21(t *testing.T) {
	p, s, tr := live(t)

	// Writing a slot that does not run disturbs nobody. What would is refused.
	next := p.imageFile("next", 2, regs.DataPathDigest)
	p.commandSays(0, []string{"slot 1 holds the image"}, "bitstream", "load", next, "--unsigned")
	p.commandSays(6, []string{"golden slot"}, "bitstream", "load", next, "--unsigned", "--slot", "0")
	p.commandSays(6, []string{"--live"}, "bitstream", "boot", "1")
	p.commandSays(0, []string{"boot slot 1, recorded try", "drain the services", "neither the function nor its bus is reset"}, "bitstream", "boot", "1", "--plan")
	tr.flows(4, 20*time.Second)
	p.runs(0, "emulator", "1.0.0")

	// A connection that is there may end; new ones are not taken meanwhile.
	slow := p.slow(s)
	tr.tolerant.Store(true)
	booted := p.boots("1", "60s")
	p.await("services are drained", 20*time.Second, func() bool {
		st, ok := p.bootState()
		return ok && st.State == "draining"
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	if err := p.small(ctx, "198.18.0.80"); err == nil {
		t.Error("a new connection was taken while services drained")
	}
	cancel()
	select {
	case err := <-slow:
		t.Errorf("a connection that was there ended while services drained: %v", err)
	case r := <-booted:
		t.Errorf("the card booted although a connection was there and had time left: exit code %d\n%s", r.exit, r.said)
	default:
	}
	close(s.released)
	if err := <-slow; err != nil {
		t.Errorf("a connection that was there when services drained: %v", err)
	}
	r := <-booted
	if r.exit != 0 || !strings.Contains(r.said, `slot 1 runs: "next" 2.0.0`) {
		t.Errorf("exit code %d\n%s", r.exit, r.said)
	}
	for _, step := range []string{"drain the services", "boot slot 1", "wait for the card", "health gate", "start the services"} {
		if !strings.Contains(r.said, step) {
			t.Errorf("step %q was not told:\n%s", step, r.said)
		}
	}
	p.await("services are back", 20*time.Second, p.resolved)
	tr.flows(4, 30*time.Second)
	tr.tolerant.Store(false)
	tr.flows(20, 30*time.Second)
	t.Logf("%d requests were answered in all", tr.answered.Load())
	p.runs(1, "next", "2.0.0")
	if st := p.slotsNow().Slots[1].State; st != program.Good {
		t.Errorf("slot 1 is recorded %s", st)
	}
	p.commandSays(6, []string{"running slot"}, "bitstream", "load", p.imageFile("other", 3, regs.DataPathDigest), "--unsigned", "--slot", "1")
	tr.flows(4, 20*time.Second)
	tr.end()
	p.atRest()
}

// TestCaseE21BadImage boots images that do not load, or that this release cannot drive: the old one is back, and serves.
func TestCaseE21BadImage(t *testing.T) {
	p, _, tr := live(t)
	broken, err := os.ReadFile(p.imageFile("broken", 2, regs.DataPathDigest))
	must(t, err)
	for at := 64; ; at++ { // the first bit that the check covers
		broken[at] ^= 1
		if _, failed, _ := image.Load(bytes.NewReader(broken), 0x13636093); failed == regs.ConfigurationBootStatusErrorCrc {
			break
		}
		broken[at] ^= 1
	}
	p.write("broken.bin", string(broken))
	for _, bad := range []struct {
		load []string
		why  string
	}{
		{[]string{p.imageFile("foreign", 3, regs.DataPathDigest^1), "--unsigned", "--slot", "1"}, "this release cannot drive it"},
		{[]string{filepath.Join(p.dir, "broken.bin"), "--raw", "--offset", "0x1000000", "--yes"}, "slot 1 did not load: crc; the card fell back to slot 0"},
	} {
		p.commandSays(0, nil, append([]string{"bitstream", "load"}, bad.load...)...)
		tr.flows(4, 20*time.Second)
		tr.tolerant.Store(true)
		p.commandSays(1, []string{bad.why, `golden runs: "emulator" 1.0.0`, "load another image into slot 1"}, "bitstream", "boot", "1", "--live", "--drain", "1s")
		p.await("services are back", 20*time.Second, p.resolved)
		tr.flows(4, 30*time.Second)
		tr.tolerant.Store(false)
		tr.flows(8, 30*time.Second)
		p.runs(0, "emulator", "1.0.0")
		if st := p.slotsNow().Slots[1].State; st != program.Bad {
			t.Errorf("slot 1 is recorded %s", st)
		}
	}
	tr.end()
	p.atRest()
}

// TestCaseE21StaysDown has the link to the servers stay down after a boot: the image before runs again, what is wrong and
// what to do is told, and the image may be tried again when the link is back.
func TestCaseE21StaysDown(t *testing.T) {
	p, _, tr := live(t)
	p.commandSays(0, nil, "bitstream", "load", p.imageFile("next", 2, regs.DataPathDigest), "--unsigned")
	tr.tolerant.Store(true)
	booted := p.boots("1", "1s")
	p.await("the boot begins", 30*time.Second, func() bool {
		st, _ := p.bootState()
		return slices.Contains(st.Steps, "boot slot 1")
	})
	must(t, p.servers.Down("eth0"))
	r := <-booted
	if r.exit == 0 {
		t.Skipf("this machine is too busy: the card was back before its link could be taken down\n%s", r.said)
	}
	for _, part := range []string{"the link of the server port did not come up within 10s; it was up before", `golden runs: "emulator" 1.0.0`,
		"slot 1 is not to blame", "look at the cable of the server port", "splicectl bitstream boot 1 again"} {
		if !strings.Contains(r.said, part) {
			t.Errorf("it does not say %q:\n%s", part, r.said)
		}
	}
	if r.exit != 1 {
		t.Errorf("exit code %d", r.exit)
	}
	p.runs(0, "emulator", "1.0.0")
	if st := p.slotsNow().Slots[1].State; st != program.Try {
		t.Errorf("slot 1 is recorded %s", st)
	}
	p.commandSays(0, []string{"down"}, "port", "list")

	must(t, p.servers.Up("eth0"))
	must(t, p.servers.Addr("eth0", "2001:db8:1::11/64")) // the kernel has forgotten
	must(t, p.servers.Route("default", "198.18.1.1"))
	must(t, p.servers.Route("default", "2001:db8:1::1"))
	p.await("the servers are found again", 30*time.Second, p.resolved)
	tr.flows(4, 60*time.Second)
	if r := <-p.boots("1", "1s"); r.exit != 0 {
		t.Errorf("exit code %d\n%s", r.exit, r.said)
	}
	p.await("services are back", 20*time.Second, p.resolved)
	tr.flows(4, 30*time.Second)
	p.runs(1, "next", "2.0.0")
	tr.end()
	p.atRest()
}

// TestCaseE21Killed kills the runtime in the midst of a boot. The next power-on is safe from the boot's begin, and the next
// runtime finds a card that it can use, says that nobody has looked at its image, and boots it properly.
func TestCaseE21Killed(t *testing.T) {
	p, _, tr := live(t)
	p.commandSays(0, nil, "bitstream", "load", p.imageFile("next", 2, regs.DataPathDigest), "--unsigned")
	for _, step := range []string{"boot slot 1", "wait for the card", "health gate"} {
		tr.tolerant.Store(true)
		booted := p.boots("1", "1s")
		p.await(step, 30*time.Second, func() bool {
			st, _ := p.bootState() // at first that of the boot before
			return st.State == "booting" && st.Slot == 1 && slices.Contains(st.Steps, step)
		})
		p.kill()
		if r := <-booted; r.exit == 0 {
			t.Errorf("%s: the command does not fail:\n%s", step, r.said)
		}
		from := len(p.log.String())
		p.run()
		p.await("the runtime answers", 30*time.Second, p.resolved)
		l := p.slotsNow()
		switch warned := strings.Contains(p.log.String()[from:], "has not been confirmed"); {
		case l.Boot.Running == 1 && l.Boot.Next == 1 && l.Slots[1].State == program.Good && !warned: // too late: it had passed
		case l.Boot.Next != 0:
			t.Errorf("%s: the next power-on tries slot %d, which is %s", step, l.Boot.Next, l.Slots[l.Boot.Next].State)
		case warned != (l.Boot.Running == 1):
			t.Errorf("%s: slot %d runs, slot %d is next, warned: %v", step, l.Boot.Running, l.Boot.Next, warned)
		}
		tr.flows(4, 60*time.Second)
		if p.t.Failed() {
			t.Logf("the second runtime said:\n%s", p.log.String()[from:])
		}
		t.Logf("killed at %q: slot %d runs, slot %d is next", step, l.Boot.Running, l.Boot.Next)
		for _, slot := range []string{"1", "0"} { // the way on, and back for the next round
			if r := <-p.boots(slot, "1s"); r.exit != 0 {
				t.Errorf("%s: boot %s: exit code %d\n%s", step, slot, r.exit, r.said)
			}
			p.await("services are back", 30*time.Second, p.resolved)
		}
		p.runs(0, "emulator", "1.0.0")
	}
	tr.flows(4, 60*time.Second)
	tr.end()
	p.atRest()
}
