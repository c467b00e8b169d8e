package connlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// desk is a writer with a file, worked by hand.
type desk struct {
	*testing.T
	*Writer
	name string
	log  bytes.Buffer
	n    int
}

func newDesk(t *testing.T, bytes int64, keep int) *desk {
	d := &desk{T: t, name: filepath.Join(t.TempDir(), "conn.log")}
	d.Writer = NewWriter(slog.New(slog.NewTextHandler(&d.log, nil)))
	d.Set(Settings{File: d.name, Bytes: bytes, Keep: keep})
	return d
}

// lines puts lines, each with its number for its id, and has them written.
func (d *desk) lines(n int) {
	for range n {
		d.n++
		d.Put(&Line{ID: fmt.Sprint(d.n)})
	}
	d.flush()
}

// ids are the ids of the lines of a file; it fails where one is no line.
func (d *desk) ids(name string) string {
	d.Helper()
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return "-"
	}
	if err != nil {
		d.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(text)) {
		var l Line
		if err := json.Unmarshal([]byte(line), &l); err != nil || !strings.HasSuffix(line, "\n") {
			d.Errorf("%s: %q: %v", name, line, err)
		}
		ids = append(ids, l.ID)
	}
	return strings.Join(ids, " ")
}

// want compares the file and those that it was rotated to.
func (d *desk) want(files ...string) {
	d.Helper()
	for i, want := range files {
		name := d.name
		if i > 0 {
			name = fmt.Sprintf("%s.%d", d.name, i)
		}
		if got := d.ids(name); got != want {
			d.Errorf("%s has lines %q, want %q", filepath.Base(name), got, want)
		}
	}
}

func lineBytes(t *testing.T) int64 {
	b, err := json.Marshal(&Line{ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(b)) + 1
}

func TestRotate(t *testing.T) {
	size := lineBytes(t)
	for _, row := range []struct {
		name  string
		bytes int64
		keep  int
		runs  []int
		want  []string
	}{
		{"room", 3 * size, 2, []int{2, 1}, []string{"1 2 3", "-"}},
		{"one too many", 3 * size, 2, []int{3, 1}, []string{"4", "1 2 3", "-"}},
		{"all at once", 2 * size, 5, []int{5}, []string{"5", "3 4", "1 2", "-"}},
		{"one by one", 2 * size, 5, []int{1, 1, 1, 1, 1}, []string{"5", "3 4", "1 2", "-"}},
		{"the last goes", 2 * size, 1, []int{5}, []string{"5", "3 4", "-"}},
		{"a line longer than a file", size / 2, 3, []int{3}, []string{"3", "2", "1", "-"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDesk(t, row.bytes, row.keep)
			for _, n := range row.runs {
				d.lines(n)
			}
			d.want(row.want...)
			d.close()
			if w := d.Written(); w.Lines != uint64(d.n) || w.Dropped+w.Failed+w.Errors != 0 || d.log.Len() != 0 {
				t.Errorf("%+v, %s", w, &d.log)
			}
		})
	}
}

// TestReopen: whoever moves the file away, takes it away or empties it gets the lines from then on in a new one.
func TestReopen(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(d *desk) error
		old  string // what is in the file that was moved
		want string
	}{
		{"nothing", func(*desk) error { return nil }, "-", "1 2"},
		{"renamed", func(d *desk) error { return os.Rename(d.name, d.name+".old") }, "1", "2"},
		{"renamed and made anew", func(d *desk) error {
			return errors.Join(os.Rename(d.name, d.name+".old"), os.WriteFile(d.name, nil, 0o600))
		}, "1", "2"},
		{"removed", func(d *desk) error { return os.Remove(d.name) }, "-", "2"},
		{"copied and emptied", func(d *desk) error { return os.Truncate(d.name, 0) }, "-", "2"},
		{"another process was killed in a line", func(d *desk) error {
			return errors.Join(os.Rename(d.name, d.name+".old"), os.WriteFile(d.name, []byte(`{"id":"0"}`), 0o600))
		}, "1", "0 2"},
		{"another configuration", func(d *desk) error {
			if err := os.Rename(d.name, d.name+".old"); err != nil {
				return err
			}
			d.name += ".new"
			d.Set(Settings{File: d.name})
			return nil
		}, "-", "2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDesk(t, 0, 0)
			d.lines(1)
			if err := row.do(d); err != nil {
				t.Fatal(err)
			}
			d.lines(1)
			d.want(row.want)
			if got := d.ids(d.name + ".old"); got != row.old {
				t.Errorf("the old file has %q, want %q", got, row.old)
			}
			d.close()
			if w := d.Written(); w.Lines != 2 || w.Failed+w.Errors != 0 {
				t.Errorf("%+v", w)
			}
		})
	}
}

// TestFileErrors: an error is told once, until it is well again, and costs only the lines meant for it.
func TestFileErrors(t *testing.T) {
	for _, row := range []struct {
		name    string
		spoil   func(d *desk) error
		restore func(d *desk) error
		want    string
		told    string
	}{
		{"no folder", func(d *desk) error { return os.Rename(filepath.Dir(d.name), filepath.Dir(d.name)+"x") },
			func(d *desk) error { return os.Rename(filepath.Dir(d.name)+"x", filepath.Dir(d.name)) }, "1 4", "no such file"},
		{"a folder", func(d *desk) error { return errors.Join(os.Remove(d.name), os.Mkdir(d.name, 0o700)) },
			func(d *desk) error { return os.Remove(d.name) }, "4", "is a directory"},
		{"a pipe", func(d *desk) error { return errors.Join(os.Remove(d.name), syscall.Mkfifo(d.name, 0o600)) },
			func(d *desk) error { return os.Remove(d.name) }, "4", "not a regular file"},
		{"no space", func(d *desk) error { d.close(); d.open = full(20); return nil },
			func(d *desk) error { d.close(); d.open = openFile; return nil }, "1 4", "no space left"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDesk(t, 0, 0)
			d.lines(1)
			if err := row.spoil(d); err != nil {
				t.Fatal(err)
			}
			d.lines(1)
			d.lines(1)
			if err := row.restore(d); err != nil {
				t.Fatal(err)
			}
			d.lines(1)
			d.want(row.want)
			d.close()
			if w := d.Written(); w.Lines != 2 || w.Failed != 2 || w.Errors != 2 {
				t.Errorf("%+v", w)
			}
			log := d.log.String()
			if strings.Count(log, "level=ERROR") != 1 || strings.Count(log, "level=INFO") != 1 || !strings.Contains(log, row.told) || !strings.Contains(log, "lines_lost=2") {
				t.Errorf("told:\n%s", log)
			}
		})
	}
}

// TestOff: what waits when there is no file any more goes to the one there was.
func TestOff(t *testing.T) {
	d := newDesk(t, 0, 0)
	d.lines(1)
	d.Put(&Line{ID: "2"})
	d.Set(Settings{})
	d.flush()
	d.Put(&Line{ID: "3"})
	d.flush()
	d.want("1 2")
	if w := d.Written(); w.Lines != 2 || w.Failed != 1 || d.f != nil || d.log.Len() != 0 {
		t.Errorf("%+v, %s", w, &d.log)
	}
}

// full opens files that take so many bytes of a write and no more.
func full(n int) func(string) (file, error) {
	return func(name string) (file, error) {
		f, err := openFile(name)
		return &fullFile{f, n}, err
	}
}

type fullFile struct {
	file
	room int
}

func (f *fullFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p[:min(f.room, len(p))])
	if err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return n, err
}

// TestPut: a file that takes no lines holds nobody up, and what is too much is counted.
func TestPut(t *testing.T) {
	w := NewWriter(slog.New(slog.DiscardHandler))
	for range queued {
		if !w.Put(&Line{}) {
			t.Fatal("not taken")
		}
	}
	for range 3 {
		if w.Put(&Line{}) {
			t.Error("taken without room")
		}
	}
	if got := w.Written(); got != (Written{Dropped: 3}) {
		t.Errorf("%+v", got)
	}
}

// TestRun: what waits when it ends is written.
func TestRun(t *testing.T) {
	d := newDesk(t, 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { d.Writer.Run(ctx); close(done) }()
	for i := range 1000 {
		d.n++
		d.Put(&Line{ID: fmt.Sprint(i)})
	}
	cancel()
	<-done
	if w := d.Written(); w.Lines != 1000 || d.f != nil {
		t.Errorf("%+v, file %v", w, d.f)
	}
	if got := strings.Count(d.ids(d.name), " "); got != 999 {
		t.Errorf("%d lines", got+1)
	}
}
