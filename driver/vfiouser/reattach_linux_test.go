package vfiouser_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
)

// rings is the memory a runtime asks for, in its order.
var rings = []struct {
	name string
	size int
}{{"ring", 4096}, {"ring", 4096}, {"frames", 300_000}, {"ring", 4096}, {"index words", 128}}

// child is a process of its own: it takes the card, fills its memory, says so and waits to be killed.
func child() {
	c, err := vfiouser.Dial(context.Background(), os.Getenv("VFIOUSER_CHILD"), vfiouser.Options{Name: "card", Dir: os.Getenv("VFIOUSER_DIR"), Reattach: true})
	if err == nil {
		err = c.WriteConfig(4, []byte{6, 0})
	}
	for i, r := range rings {
		var m *device.DMA
		if err != nil {
			break
		}
		if m, err = c.AllocDMA(r.name, r.size); err == nil && m.Bytes[0] == 0 {
			copy(m.Bytes, fmt.Sprintf("written by the first child: %d", i))
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, m := range c.Memory() {
		fmt.Printf("%s %#x %d\n", m.Name, m.IOVA, m.Bytes)
	}
	fmt.Println("ready")
	select {}
}

// spawn starts a child and returns what it says about its memory.
func spawn(t *testing.T, s *served) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "VFIOUSER_CHILD="+s.path, "VFIOUSER_DIR="+s.options().Dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said string
	for in := bufio.NewScanner(out); in.Scan(); said += in.Text() + "\n" {
		if in.Text() == "ready" {
			return cmd, said
		}
	}
	t.Fatalf("child: %v\n%s", cmd.Wait(), said)
	return nil, ""
}

// watchedCard lets a test write to host memory as the card, and counts what is refused.
type watchedCard struct {
	*devicetest.Card
	host  atomic.Value
	nohow atomic.Int64
}

func (c *watchedCard) SetHost(m device.Memory) {
	if m == nil {
		c.nohow.Add(1)
	} else {
		c.host.Store(m)
	}
	c.Card.SetHost(m)
}

// TestKilled kills a runtime again and again while the card writes to its ring: no write is refused, and the next one
// finds everything where it was.
func TestKilled(t *testing.T) {
	card := &watchedCard{Card: devicetest.NewCard()}
	s := serve(t, card, vfiouser.Config{})
	first, said := spawn(t, s)
	host := card.host.Load().(device.Memory)

	var ring, iova uint64
	for _, line := range bytes.Split([]byte(said), []byte("\n")) {
		if n, _ := fmt.Sscanf(string(line), "frames 0x%x", &iova); n == 1 {
			ring = iova + 1<<16
		}
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { // the card, which knows nothing of its hosts
		for i := uint32(1); ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := host.Store32(ring+uint64(i%64)*4, i); err != nil {
				stopped <- fmt.Errorf("store %d: %w", i, err)
				return
			}
		}
	}()
	cmd := first
	for range 5 {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		var again string
		if cmd, again = spawn(t, s); again != said {
			t.Errorf("memory is\n%swas\n%s", again, said)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	o := s.options()
	o.Reattach = true
	c := s.dial(o)
	for i, r := range rings {
		m := alloc(t, c, r.name, r.size)
		if want := fmt.Sprintf("written by the first child: %d", i); !bytes.HasPrefix(m.Bytes, []byte(want)) || !c.Kept(m) {
			t.Errorf("memory %d: kept %v, %q", i, c.Kept(m), m.Bytes[:32])
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Errorf("the card was refused: %v", err)
	}
	if n := card.nohow.Load(); n != 0 {
		t.Errorf("the card had no host %d times", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if es, err := os.ReadDir(o.Dir); err != nil || len(es) != 0 {
		t.Errorf("left after Close: %v, %v", es, err)
	}
}

// TestReattach walks the ways memory is found again, or not.
func TestReattach(t *testing.T) {
	s, card, c := scratch(t, vfiouser.Config{})
	o := s.options()
	o.Reattach = true
	iovas := map[string]uint64{}
	for _, name := range []string{"a", "b", "c"} {
		m := alloc(t, c, name, 8192)
		iovas[name] = m.IOVA
		copy(m.Bytes, name)
	}
	_, err := vfiouser.Dial(t.Context(), s.path, o)
	wantErr(t, "Dial beside the first", err, device.ErrBusy)
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "Err after Detach", c.Err(), device.ErrClosed)

	c = s.dial(o)
	if n := len(c.Memory()); n != 3 {
		t.Errorf("%d allocations found", n)
	}
	var b [2]byte
	if err := c.ReadConfig(4, b[:]); err != nil || b[0]&4 == 0 {
		t.Errorf("bus mastering did not outlive Detach: %#x, %v", b, err)
	}
	a := alloc(t, c, "a", 5000) // the same number of pages
	if a.IOVA != iovas["a"] || a.Bytes[0] != 'a' || !c.Kept(a) {
		t.Errorf("a at %#x holds %q", a.IOVA, a.Bytes[:1])
	}
	bigger := alloc(t, c, "b", 20_000)
	if c.Kept(bigger) || bigger.Bytes[0] != 0 || len(bigger.Bytes) < 20_000 {
		t.Errorf("b of another size: kept %v", c.Kept(bigger))
	}
	again := alloc(t, c, "a", 8192)
	if c.Kept(again) || again.IOVA == a.IOVA || again.Bytes[0] != 0 {
		t.Error("a second a is the first one's")
	}
	if err := c.ReleaseUnclaimed(); err != nil { // c
		t.Error(err)
	}
	if n := card.Maps(); n != 3 {
		t.Errorf("%d maps, want 3", n)
	}
	h := card.NewHarness(c)
	if err := h.Copy(bigger.IOVA, a.IOVA, 64); err != nil || bigger.Bytes[0] != 'a' {
		t.Errorf("copy: %v", err)
	}
	if err := h.Copy(bigger.IOVA, iovas["c"], 64); err == nil {
		t.Error("the card reaches memory that was released")
	}
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	// A file that is gone is left out; one that was cut is an error that destroys nothing.
	if err := os.Remove(filepath.Join(o.Dir, "dma-a.1")); err != nil {
		t.Fatal(err)
	}
	c = s.dial(o)
	if n := len(c.Memory()); n != 2 {
		t.Errorf("%d allocations found, want 2", n)
	}
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(o.Dir, "dma-b"), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := vfiouser.Dial(t.Context(), s.path, o); err == nil {
		t.Error("a file that was cut was mapped")
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "dma.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vfiouser.Dial(t.Context(), s.path, o); err == nil {
		t.Error("a broken state file was taken")
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "dma-a")); err != nil {
		t.Errorf("after two failures: %v", err)
	}
	// Without Reattach all of it goes.
	c = s.dial(s.options())
	if es, err := filepath.Glob(filepath.Join(o.Dir, "dma*")); err != nil || len(es) != 0 {
		t.Errorf("left after a new start: %v, %v", es, err)
	}
	if m := alloc(t, c, "a", 8192); m.Bytes[0] != 0 {
		t.Error("memory is not zeroed")
	}
}

// TestDirBusy: two clients of two cards cannot share a directory.
func TestDirBusy(t *testing.T) {
	a := serve(t, devicetest.NewCard(), vfiouser.Config{})
	b := serve(t, devicetest.NewCard(), vfiouser.Config{})
	a.dial(a.options())
	o := b.options()
	o.Dir = a.options().Dir
	_, err := vfiouser.Dial(t.Context(), b.path, o)
	wantErr(t, "Dial", err, device.ErrBusy)
	if es, err := os.ReadDir(o.Dir); err != nil || len(es) != 1 {
		t.Errorf("the directory holds %v, %v", es, err)
	}
}

// TestMemory says where memory comes from, and what is there after it is freed.
func TestMemory(t *testing.T) {
	s, _, c := scratch(t, vfiouser.Config{})
	m := alloc(t, c, "ring/0", 5000)
	ms := c.Memory()
	want := vfiouser.Memory{Name: "ring-0", File: filepath.Join(s.options().Dir, "dma-ring-0"), IOVA: m.IOVA, Bytes: 8192, PageBytes: 4096, Claimed: true}
	if os.Getpagesize() == 4096 && (len(ms) != 1 || ms[0] != want) {
		t.Errorf("Memory = %+v, want %+v", ms, want)
	}
	if st, err := os.Stat(want.File); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(want.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	// No room: an error with words, and nothing left behind.
	o := s.options()
	o.HugeDirs = []string{s.dir}
	c.Close()
	if _, err := vfiouser.Dial(t.Context(), s.path, o); err == nil {
		t.Error("a tmpfs passed for a hugetlbfs")
	}
}
