package connlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// Settings say where lines go.
type Settings struct {
	File  string // empty: nowhere
	Bytes int64  // of a file before it is rotated; zero: 64 MiB
	Keep  int    // rotated files that are kept, FILE.1 the latest; zero: 5
}

const (
	defaultBytes = 64 << 20
	defaultKeep  = 5

	queued  = 8192    // lines that wait for the file at most
	gather  = 1 << 16 // bytes that are written at once, about
	maxKeep = 1000
)

// Written counts what became of lines.
type Written struct {
	Lines    uint64 // written
	Dropped  uint64 // not taken: too many were waiting
	Failed   uint64 // lost to errors of the file
	Rotated  uint64
	Reopened uint64 // times the file was another's, or gone, and was made anew
	Errors   uint64
}

// A Writer writes lines to a file. Put and Set do not wait; Run does the work.
type Writer struct {
	log   *slog.Logger
	queue chan *Line
	news  chan struct{} // Set was called
	open  func(name string) (file, error)

	lines, dropped, failed, rotated, reopened, errors atomic.Uint64

	mu   sync.Mutex
	want Settings

	// Of Run alone.
	s       Settings
	f       file // nil: not open
	size    int64
	failing bool // told, and not yet well again
	text    bytes.Buffer
	count   uint64 // lines in text
}

// file is what a Writer needs of an *os.File.
type file interface {
	io.WriteCloser
	io.ReaderAt
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
}

// NewWriter returns a writer without a file. What goes wrong is told to log once, until it goes well again.
func NewWriter(log *slog.Logger) *Writer {
	return &Writer{log: log, queue: make(chan *Line, queued), news: make(chan struct{}, 1), open: openFile}
}

// openFile opens a file for lines. It has to be a regular one: others may block, and cannot be rotated.
func openFile(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Put gives a line to be written, and says whether it was taken. The line is the writer's from then on.
func (w *Writer) Put(l *Line) bool {
	select {
	case w.queue <- l:
		return true
	default:
		w.dropped.Add(1)
		return false
	}
}

// Set says where lines go from now on. Lines that wait go there, too, unless it is nowhere.
func (w *Writer) Set(s Settings) {
	if s.Bytes == 0 {
		s.Bytes = defaultBytes
	}
	if s.Keep == 0 {
		s.Keep = defaultKeep
	}
	s.Keep = min(s.Keep, maxKeep)
	w.mu.Lock()
	w.want = s
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Written returns what was counted so far.
func (w *Writer) Written() Written {
	return Written{w.lines.Load(), w.dropped.Load(), w.failed.Load(), w.rotated.Load(), w.reopened.Load(), w.errors.Load()}
}

// Run writes lines until ctx ends, then what waits, and closes the file.
func (w *Writer) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			w.flush()
			w.close()
			return
		case <-w.news:
			w.flush()
		case l := <-w.queue:
			w.add(l)
			w.flush()
		}
	}
}

// flush writes what waits.
func (w *Writer) flush() {
	w.follow()
	w.drain()
}

func (w *Writer) drain() {
	for {
		select {
		case l := <-w.queue:
			w.add(l)
		default:
			w.write()
			return
		}
	}
}

// follow does what Set said.
func (w *Writer) follow() {
	w.mu.Lock()
	want := w.want
	w.mu.Unlock()
	if want == w.s {
		return
	}
	if want.File == "" {
		w.drain()
	}
	if want.File != w.s.File {
		w.close()
	}
	w.s, w.failing = want, false
}

// add puts a line into text, which is written when there is enough of it, or when it fills the file.
func (w *Writer) add(l *Line) {
	at := w.text.Len()
	e := json.NewEncoder(&w.text)
	e.SetEscapeHTML(false)
	if err := e.Encode(l); err != nil { // no Line has what JSON lacks
		w.text.Truncate(at)
		w.failed.Add(1)
		return
	}
	w.count++
	if full := w.size+int64(w.text.Len()) > w.s.Bytes; full && at > 0 {
		// The line belongs into the next file.
		last := bytes.Clone(w.text.Bytes()[at:])
		w.text.Truncate(at)
		w.count--
		w.write()
		w.text.Write(last)
		w.count++
	}
	if w.text.Len() >= gather {
		w.write()
	}
}

// write writes text. Lines that cannot be written are lost, so that those behind them are not.
func (w *Writer) write() {
	n := w.count
	defer func() {
		w.text.Reset()
		w.count = 0
	}()
	if n == 0 || w.s.File == "" {
		w.failed.Add(n)
		return
	}
	err := w.ready()
	if err == nil {
		err = w.append()
	}
	if err != nil {
		w.failed.Add(n)
		w.errors.Add(1)
		w.close() // the next attempt begins anew
		if !w.failing {
			w.failing = true
			w.log.Error("log of connections not written; lines are lost until it can be", "file", w.s.File, "error", err)
		}
		return
	}
	w.lines.Add(n)
	if w.failing {
		w.failing = false
		w.log.Info("log of connections is written again", "file", w.s.File, "lines_lost", w.failed.Load())
	}
}

// ready sees to it that the file is open, is the one of its name, and has room.
func (w *Writer) ready() error {
	if w.f != nil && !w.named() {
		w.close()
		w.reopened.Add(1)
	}
	if err := w.need(); err != nil {
		return err
	}
	if w.size == 0 || w.size+int64(w.text.Len()) <= w.s.Bytes {
		return nil
	}
	w.close()
	if err := w.rotate(); err != nil {
		return err
	}
	w.rotated.Add(1)
	return w.need()
}

// named says whether the open file is still the one of its name, and as long as it was.
func (w *Writer) named() bool {
	mine, err := w.f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(w.s.File)
	return err == nil && os.SameFile(mine, there) && mine.Size() == w.size
}

// need opens the file where it is not. A last line without an end, of a process that was killed, is ended.
func (w *Writer) need() error {
	if w.f != nil {
		return nil
	}
	f, err := w.open(w.s.File)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	w.f, w.size = f, info.Size()
	var last [1]byte
	if w.size == 0 {
		return nil
	}
	if _, err := f.ReadAt(last[:], w.size-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		n, err := f.Write([]byte("\n"))
		w.size += int64(n)
		return err
	}
	return nil
}

// append writes text at the file's end. What was written of it in vain is taken back, so that no line is cut.
func (w *Writer) append() error {
	n, err := w.f.Write(w.text.Bytes())
	if err != nil && n > 0 {
		err = errors.Join(err, w.f.Truncate(w.size))
	}
	if err == nil {
		w.size += int64(n)
	}
	return err
}

// rotate makes the file FILE.1, FILE.1 FILE.2 and so on; the last one goes.
func (w *Writer) rotate() error {
	name := func(i int) string {
		if i == 0 {
			return w.s.File
		}
		return w.s.File + "." + strconv.Itoa(i)
	}
	for i := w.s.Keep - 1; i >= 0; i-- {
		if err := os.Rename(name(i), name(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotate: %w", err)
		}
	}
	return nil
}

func (w *Writer) close() {
	if w.f == nil {
		return
	}
	if err := w.f.Close(); err != nil { // a delayed error of what was written
		w.errors.Add(1)
		w.log.Error("close log of connections", "file", w.s.File, "error", err)
	}
	w.f, w.size = nil, 0
}
