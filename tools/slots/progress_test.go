package slots

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/bitstream/program"
)

// events are a comparison and a load of 8 MiB that ends.
var events = []program.Event{
	{Phase: "compare", Done: 4 << 20, Total: 8 << 20, Rate: 4 << 20, ETA: 1},
	{Phase: "compare", Done: 8 << 20, Total: 8 << 20, Rate: 4 << 20, ETA: 0},
	{Phase: "write", Done: 0, Total: 8 << 20, Rate: 0, ETA: 90},
	{Phase: "write", Done: 1 << 20, Total: 8 << 20, Rate: 1 << 17, ETA: 59.6},
	{Phase: "write", Done: 1<<20 + 1<<16, Total: 8 << 20, Rate: 1 << 17, ETA: 59},
	{Phase: "write", Done: 8 << 20, Total: 8 << 20, Rate: 1 << 17, ETA: 0},
}

// TestProgressLines has a log get a line for each tenth.
func TestProgressLines(t *testing.T) {
	var b strings.Builder
	p := NewProgress(&b, false)
	for _, e := range events {
		p.Show(e)
	}
	p.End()
	const want = `compare  50 %  4.0 of 8.0 MiB, 4.00 MiB/s, 1s left
compare 100 %  8.0 of 8.0 MiB, 4.00 MiB/s, 0s left
write     0 %  0.0 of 8.0 MiB, 0.00 MiB/s, 1m30s left
write    12 %  1.0 of 8.0 MiB, 0.12 MiB/s, 1m0s left
write   100 %  8.0 of 8.0 MiB, 0.12 MiB/s, 0s left
`
	if b.String() != want {
		t.Errorf("got\n%swanted\n%s", b.String(), want)
	}
	b.Reset()
	p = NewProgress(&b, false)
	p.Show(program.Event{Phase: "read", Done: 1380, Total: 1380, Rate: 1 << 20})
	p.Show(program.Event{Phase: "write", Done: 6, Total: 6, Rate: 1})
	if want := "read    100 %  1.3 of 1.3 KiB, 1.00 MiB/s, 0s left\nwrite   100 %  6 of 6 bytes, 0s left\n"; b.String() != want {
		t.Errorf("got %q, wanted %q", b.String(), want)
	}
}

// TestProgressJSON has a program get each event on a line of its own.
func TestProgressJSON(t *testing.T) {
	var b strings.Builder
	p := NewProgress(&b, true)
	for _, e := range events {
		p.Show(e)
	}
	p.End()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != len(events) {
		t.Fatalf("got %q", lines)
	}
	for i, l := range lines {
		var e program.Event
		if err := json.Unmarshal([]byte(l), &e); err != nil || e != events[i] {
			t.Errorf("got %s, %v", l, err)
		}
	}
	if want := `{"phase":"write","done":1048576,"total":8388608,"rate":131072,"eta":59.6}`; lines[3] != want {
		t.Errorf("got %s, wanted %s", lines[3], want)
	}
}

// TestProgressTerminal has a terminal get a bar that is written over, with the time that is left, and a line end behind it
// before anything else is printed.
func TestProgressTerminal(t *testing.T) {
	near, far := terminal(t)
	p := NewProgress(far, false)
	if !p.terminal {
		t.Fatal("a terminal is not known as one")
	}
	for _, e := range events[:len(events)-1] {
		p.Show(e)
	}
	p.End() // stopped there
	p.End()
	fmt.Fprintln(far, "error: stopped")
	var got []string
	r := bufio.NewReader(near)
	for range 3 {
		l, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	want := []string{
		"\rcompare [##########..........]  50 %  4.0 of 8.0 MiB, 4.00 MiB/s, 1s left" +
			"\rcompare [####################] 100 %  8.0 of 8.0 MiB, 4.00 MiB/s, 0s left\r\n",
		"\rwrite   [....................]   0 %  0.0 of 8.0 MiB, 0.00 MiB/s, 1m30s left" +
			"\rwrite   [##..................]  12 %  1.0 of 8.0 MiB, 0.12 MiB/s, 1m0s left " +
			"\rwrite   [##..................]  13 %  1.1 of 8.0 MiB, 0.12 MiB/s, 59s left \r\n",
		"error: stopped\r\n",
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got\n%q, wanted\n%q", got[i], want[i])
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if NewProgress(null, false).terminal {
		t.Error("a device that is no terminal gets a bar")
	}
}

// terminal returns both ends of a new terminal.
func terminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { near.Close() })
	fd := int(near.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}
