package acceptance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/flash"
	"splicenic/emu/port"
	"splicenic/regs"
)

// Where things lie in the emulated card's flash.
const (
	slotBytes   = 16 << 20
	sectorBytes = 64 << 10
	imageBytes  = 140_000 // of the image that is loaded, three sectors
)

// TestKilledLoad kills a load, and sometimes its card too, at points that a seed spreads over the bytes that the load sends
// its card. Whatever is left boots, golden is untouched, and the same command again finishes.
func TestKilledLoad(t *testing.T) {
	points := 10
	if long {
		points = 100
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SPLICE_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	k := newKilled(t)
	all := k.length()
	t.Logf("SPLICE_SEED=%d: %d points over the %d bytes that a load sends", seed, points, all)
	r := rand.New(rand.NewPCG(seed, 1))
	left := map[string]int{}
	for _, i := range r.Perm(points) {
		at := (int64(i)*all + r.Int64N(all)) / int64(points)
		what := k.point(at, i%3)
		left[what]++
		t.Logf("killed after %d of %d bytes (%d %%), %s: %s", at, all, 100*at/all, killWays[i%3], what)
	}
	t.Logf("what was left in the slot: %v", left)
	if len(left) < 4 {
		t.Errorf("only %d states of the slot were seen: the points are not spread", len(left))
	}
}

var killWays = [...]string{"the load alone", "the load; then the card is restarted", "load and card"}

// killed is a card process with a flash in a file, whose slot 1 holds the image that a load exchanges.
type killed struct {
	t             *testing.T
	dir           string
	base          []byte // of the flash, before each load
	golden, image [32]byte
	card          *exec.Cmd
}

func newKilled(t *testing.T) *killed {
	t.Helper()
	k := &killed{t: t, dir: t.TempDir()}
	for _, args := range [][]string{
		{"-o", k.path("old.bit"), "-name", "old", "-version", "1.1.0", "-bytes", "60000", "-pages", "1024"},
		{"-o", k.path("new.bit"), "-name", "new", "-version", "2.0.0", "-bytes", strconv.Itoa(imageBytes), "-pages", "1024"},
		{"-flash", k.path("card.flash"), "-name", "golden", "-pages", "1024"},
	} {
		if out, err := exec.Command("go", append([]string{"run", "../emuimage"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("emuimage: %v\n%s", err, out)
		}
	}
	k.startCard()
	k.must("bitstream", "load", k.path("old.bit"), "--unsigned", "--slot", "1")
	k.stopCard()
	var err error
	k.base, err = os.ReadFile(k.path("card.flash"))
	must(t, err)
	// Behind the image that boots lies what differs in every byte from the one to come.
	_, err = io.ReadFull(stream(1, 2*sectorBytes), k.base[slotBytes+sectorBytes:][:2*sectorBytes])
	must(t, err)
	bit, err := os.ReadFile(k.path("new.bit"))
	must(t, err)
	k.golden, k.image = sha256.Sum256(k.base[:slotBytes]), sha256.Sum256(bit[len(bit)-imageBytes:])
	return k
}

func (k *killed) path(name string) string { return filepath.Join(k.dir, name) }

func (k *killed) flash() []byte {
	k.t.Helper()
	b, err := os.ReadFile(k.path("card.flash"))
	must(k.t, err)
	return b
}

// reset has the flash be as before any load, in the sectors that one writes.
func (k *killed) reset() {
	k.t.Helper()
	f, err := os.OpenFile(k.path("card.flash"), os.O_WRONLY, 0)
	must(k.t, err)
	defer f.Close()
	for _, r := range [][2]int64{{slotBytes, slotBytes + 3*sectorBytes}, {3 * slotBytes, 3*slotBytes + 2*sectorBytes}} {
		b := bytes.Repeat([]byte{0xff}, int(r[1]-r[0]))
		copy(b, k.base[min(int(r[0]), len(k.base)):])
		_, err := f.WriteAt(b, r[0])
		must(k.t, err)
	}
}

func (k *killed) startCard() {
	k.t.Helper()
	k.card = exec.Command(binary, "card", "serve", "--card", "emu", "--flash", k.path("card.flash"), "--socket", k.path("card.sock"), "--client", "mem", "--server", "mem")
	out, err := k.card.StdoutPipe()
	must(k.t, err)
	var log output
	k.card.Stderr = &log
	must(k.t, k.card.Start())
	this := k.card
	k.t.Cleanup(func() { _ = this.Process.Kill(); _ = this.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		k.t.Fatalf("the card process does not start: %q, %v\n%s", line, err, log.String())
	}
}

func (k *killed) stopCard() {
	k.t.Helper()
	must(k.t, k.card.Process.Signal(unix.SIGTERM))
	if err := k.card.Wait(); err != nil {
		k.t.Errorf("the card process ends: %v", err)
	}
}

func (k *killed) command(socket string, args ...string) *exec.Cmd {
	c := exec.Command(binary, append(args, "--card", "vfio-user:"+k.path(socket), "--socket", k.path("none.sock"))...)
	c.Env = append(os.Environ(), "SPLICE_CARD=")
	return c
}

// must runs splicectl on the card. One that was killed a moment ago may count as its client still.
func (k *killed) must(args ...string) string {
	k.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := k.command("card.sock", args...).CombinedOutput()
		if err == nil {
			return string(out)
		}
		if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 5 || time.Now().After(end) {
			k.t.Fatalf("splicectl %v: %v\n%s", args, err, out)
		}
	}
}

var killedLoad = []string{"bitstream", "load", "--unsigned", "--slot", "1", "-o", "json"}

// length is how many bytes a whole load sends its card.
func (k *killed) length() int64 {
	k.t.Helper()
	k.reset()
	k.startCard()
	defer k.stopCard()
	w := k.between(1 << 62)
	defer w.close()
	if out, err := k.command("between.sock", append(killedLoad, k.path("new.bit"))...).CombinedOutput(); err != nil {
		k.t.Fatalf("a load that nobody kills: %v\n%s", err, out)
	}
	return w.count()
}

// point kills a load that has sent n bytes, looks whether all is well, and returns what was in the slot.
func (k *killed) point(n int64, way int) string {
	k.t.Helper()
	k.reset()
	k.startCard()
	w := k.between(n)
	load := k.command("between.sock", append(killedLoad, k.path("new.bit"))...)
	var said output
	load.Stdout, load.Stderr = &said, &said
	must(k.t, load.Start())
	ended := make(chan error, 1)
	go func() { ended <- load.Wait() }()
	select {
	case <-w.reached:
		must(k.t, load.Process.Kill())
		<-ended
	case err := <-ended: // the last point: how often a load looks whether the card is busy is not always the same
		if err != nil || 10*w.count() < 9*n {
			k.t.Fatalf("the load ends after %d bytes and not %d: %v\n%s", w.count(), n, err, said.String())
		}
	case <-time.After(2 * time.Minute):
		k.t.Fatalf("the load has not sent %d bytes\n%s", n, said.String())
	}
	if way == 2 {
		must(k.t, k.card.Process.Kill())
		_ = k.card.Wait()
	}
	w.close()
	if way == 1 {
		k.stopCard()
	}
	was := k.state()
	k.boots(was)
	if way != 0 {
		k.startCard()
	}
	if out := k.must("bitstream", "load", k.path("new.bit"), "--unsigned", "--slot", "1"); was == "new" && !bytes.Contains([]byte(out), []byte("holds the image")) {
		k.t.Errorf("the second load says %q", out)
	}
	k.must("bitstream", "readback", "1", "--to", k.path("read.bin"))
	read, err := os.ReadFile(k.path("read.bin"))
	must(k.t, err)
	must(k.t, os.Remove(k.path("read.bin")))
	if sha256.Sum256(read) != k.image {
		k.t.Errorf("%d bytes are read back, which are not the image", len(read))
	}
	var plan struct{ Write, Skip int }
	must(k.t, json.Unmarshal([]byte(k.output("bitstream", "load", k.path("new.bit"), "--unsigned", "--slot", "1", "--plan", "-o", "json")), &plan))
	if plan.Write != 0 || plan.Skip != 3 {
		k.t.Errorf("after the second load there is more to do: %+v", plan)
	}
	k.stopCard()
	if got := k.state(); got != "new" {
		k.t.Errorf("the slot is %q in the end", got)
	}
	k.boots("new")
	return was
}

// output is what splicectl says on its standard output.
func (k *killed) output(args ...string) string {
	k.t.Helper()
	out, err := k.command("card.sock", args...).Output()
	if err != nil {
		k.t.Fatalf("splicectl %v: %v", args, err)
	}
	return string(out)
}

// state says what is in the slot: old, new, or how many of the new image's pages are there.
func (k *killed) state() string {
	k.t.Helper()
	b := k.flash()
	if sha256.Sum256(b[:slotBytes]) != k.golden {
		k.t.Fatal("the golden slot has changed")
	}
	slot := b[slotBytes:]
	bit, err := os.ReadFile(k.path("new.bit"))
	must(k.t, err)
	image := bit[len(bit)-imageBytes:]
	sync := bytes.Index(image, []byte{0xaa, 0x99, 0x55, 0x66})
	switch {
	case bytes.Equal(slot[:imageBytes], image):
		return "new"
	case bytes.Equal(slot[sync:imageBytes], image[sync:]): // what stands before is for wider buses than a flash's
		return "new from its sync word on"
	case bytes.Equal(slot[:3*sectorBytes], k.base[slotBytes:][:3*sectorBytes]):
		return "old"
	}
	pages := 0
	for i := 0; i < imageBytes; i += 256 {
		if end := min(i+256, imageBytes); bytes.Equal(slot[i:end], image[i:end]) {
			pages++
		}
	}
	return fmt.Sprintf("%d pages", pages)
}

// boots gives a card the flash as it is and has it try slot 1 first: the image there, if it is whole, else golden.
func (k *killed) boots(state string) {
	k.t.Helper()
	f, err := flash.New(flash.Config{Store: flash.NewMemory(flash.MT25QL512, k.flash())})
	must(k.t, err)
	must(k.t, f.SetBoard(flash.Board{Next: 1}))
	wire, _ := port.Pair(port.MemConfig{})
	e, err := emu.New(emu.Config{Client: wire, Flash: f, Geometry: emu.Geometry{Pages: 1024}})
	must(k.t, err)
	defer e.Close()
	dev := device.Local(e, device.LocalConfig{})
	defer dev.Close()
	c, err := driver.Open(k.t.Context(), dev, driver.Config{Shell: true})
	must(k.t, err)
	boot, err := c.BootState()
	must(k.t, err)
	want, _, _ := strings.Cut(state, " ")
	if want != "old" && want != "new" {
		want = "golden"
	}
	if w := c.Load(regs.ControlStatus); w != regs.ControlStatusReadyMask || c.Identity().Name != want || boot.Fallback != (want == "golden") {
		k.t.Errorf("slot 1 holds %s: the card boots %q with control.status %#x, %+v; want %q", state, c.Identity().Name, w, boot, want)
	}
}

// A cutter carries a card's socket to its client until that has sent so many bytes. Then it carries nothing.
type cutter struct {
	listener *net.UnixListener
	reached  chan struct{}
	mu       sync.Mutex
	limit    int64
	sent     int64
	open     []*net.UnixConn
}

func (k *killed) between(limit int64) *cutter {
	k.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: k.path("between.sock"), Net: "unix"})
	must(k.t, err)
	w := &cutter{listener: l, reached: make(chan struct{}), limit: limit}
	go func() {
		for {
			client, err := l.AcceptUnix()
			if err != nil {
				return
			}
			card, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: k.path("card.sock"), Net: "unix"})
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, client, card)
			w.mu.Unlock()
			go w.carry(card, client, true)
			go w.carry(client, card, false)
		}
	}()
	return w
}

// carry carries bytes and descriptors.
func (w *cutter) carry(to, from *net.UnixConn, counted bool) {
	b, oob := make([]byte, 1<<16), make([]byte, 1024)
	for {
		n, k, _, _, err := from.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			_ = to.CloseWrite()
			return
		}
		last := false
		if counted {
			w.mu.Lock()
			if last = w.sent+int64(n) >= w.limit; last {
				n = int(w.limit - w.sent)
			}
			w.sent += int64(n)
			w.mu.Unlock()
		}
		if n > 0 {
			_, _, err = to.WriteMsgUnix(b[:n], oob[:k], nil)
		}
		closeDescriptors(oob[:k])
		if last {
			close(w.reached)
			return
		}
		if err != nil {
			return
		}
	}
}

func closeDescriptors(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

func (w *cutter) count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

func (w *cutter) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		_ = c.Close()
	}
}
