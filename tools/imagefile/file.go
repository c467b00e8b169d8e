package imagefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"splicenic/bitstream"
	"splicenic/tools/control"
)

const image = "an FPGA image"

// kinds are what a path may lead to that is no file.
var kinds = []struct {
	mode     fs.FileMode
	name, do string
}{
	{fs.ModeDir, "a directory", "name a file"},
	{fs.ModeDevice, "a device node", "name a file"},
	{fs.ModeNamedPipe, "a pipe", "name a file; an image may come from standard input, as -"},
	{fs.ModeSocket, "a socket", "name a file"},
	{fs.ModeIrregular, "something that is no file", "name a file"},
}

// Kind names what a path leads to.
func Kind(m fs.FileMode) string {
	for _, k := range kinds {
		if m&k.mode != 0 {
			return k.name
		}
	}
	return "a file"
}

// regular is an error where something is no file.
func regular(name, wanted string, m fs.FileMode) error {
	for _, k := range kinds {
		if m&k.mode != 0 {
			return control.Usage(fmt.Sprintf("%s: got %s, wanted %s", name, k.name, wanted), k.do)
		}
	}
	return nil
}

// OpenFile opens a file to read it. Nothing else is opened: some devices do something then, and a pipe waits. wanted says in
// errors what the file should hold.
func OpenFile(name, wanted string) (*os.File, int64, error) {
	s, err := os.Stat(name)
	if err != nil {
		return nil, 0, control.Usage(err.Error(), "check the path")
	}
	if err := regular(name, wanted, s.Mode()); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, control.Usage(err.Error(), "check the path and its permissions")
	}
	if s, err = f.Stat(); err == nil { // it may be another one by now
		err = regular(name, wanted, s.Mode())
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, s.Size(), nil
}

// open opens a file with an image; "-" is in, which may be nil where it was read before. The size is 0 where it is not known.
func open(name string, in io.Reader) (r io.ReadCloser, size int64, err error) {
	if name != "-" {
		return OpenFile(name, image)
	}
	if in == nil {
		return nil, 0, control.Usage("standard input cannot be read a second time", "name a file")
	}
	from := in
	if u, ok := in.(*until); ok {
		from = u.r
	}
	if f, ok := from.(*os.File); ok {
		if s, err := f.Stat(); err == nil && s.IsDir() {
			return nil, 0, regular("standard input", image, s.Mode())
		}
	}
	return io.NopCloser(in), 0, nil
}

// Until is r, with reads that end when ctx does: who reads a terminal would wait for ever otherwise. A read that was given up
// goes on and takes what comes, so r is of no use afterwards.
func Until(ctx context.Context, r io.Reader) io.Reader { return &until{ctx: ctx, r: r} }

type until struct {
	ctx  context.Context
	r    io.Reader
	rest []byte
	err  error // comes after rest
}

func (u *until) Read(p []byte) (int, error) {
	if len(u.rest) == 0 && u.err == nil {
		if err := u.ctx.Err(); err != nil {
			return 0, err
		}
		type result struct {
			data []byte
			err  error
		}
		done := make(chan result, 1)
		go func() {
			b := make([]byte, 64<<10)
			n, err := u.r.Read(b)
			done <- result{b[:n], err}
		}()
		select {
		case <-u.ctx.Done():
			return 0, u.ctx.Err()
		case r := <-done:
			u.rest, u.err = r.data, r.err
		}
	}
	n := copy(p, u.rest)
	if u.rest = u.rest[n:]; n > 0 || u.err == nil {
		return n, nil
	}
	return 0, u.err
}

// What names the content of a file by its first bytes.
func What(head []byte) string {
	img, err := bitstream.Read(bytes.NewReader(head), bitstream.Options{})
	if n, ok := errors.AsType[*bitstream.NotImage](err); ok {
		return n.Got
	}
	if f, ok := errors.AsType[*bitstream.FormatError](err); ok {
		return fmt.Sprintf("a file of format %s", f.Format)
	}
	if err != nil {
		return "something else"
	}
	return fmt.Sprintf("a file of format %s", img.Format)
}

// Writable is an error where Write would fail, as far as that can be known before there is something to write.
func Writable(name string, force bool) error {
	if name == "-" {
		return control.Usage("got -, wanted a file to write", "standard output says what was done; name a file")
	}
	if s, err := os.Stat(name); err == nil {
		if err := regular(name, "a file to write", s.Mode()); err != nil {
			return err
		}
		if !force {
			return control.Refuse(name+" is there already", "nothing is overwritten unasked", "name another file, or say --force")
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return control.Usage(err.Error(), "name a file that can be written")
	}
	dir := filepath.Dir(name)
	if s, err := os.Stat(dir); err != nil {
		return control.Usage(err.Error(), "make the directory first")
	} else if !s.IsDir() {
		return control.Usage(dir+": got a file, wanted a directory", "name a file in a directory that can be written")
	}
	return nil
}

// Write writes a file: all of it or nothing. What is there already is replaced with force only.
func Write(name string, data []byte, force bool) (err error) {
	if err := Writable(name, force); err != nil {
		return err
	}
	part := fmt.Sprintf("%s.%d.part", name, os.Getpid())
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return control.Usage(err.Error(), "name a file in a directory that can be written")
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(part))
	}
	return nil
}
