// Package imagefile opens and writes files for the commands about FPGA images: by name or from standard input, and with
// errors that say what was found where something else was wanted.
package imagefile

import (
	"errors"
	"fmt"
	"io"

	"splicenic/bitstream"
	"splicenic/tools/control"
)

// Read reads an image. Errors are control.Failures: what is no image is wrong usage, a broken image a failure.
func Read(name string, in io.Reader, o bitstream.Options) (*bitstream.Image, error) {
	r, size, err := open(name, in)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	o.Name, o.Size = name, size
	img, err := bitstream.Read(r, o)
	if err == nil {
		return img, nil
	}
	f := control.Explain(name, err)
	if n, ok := errors.AsType[*bitstream.NotImage](err); ok {
		f = control.Usage(fmt.Sprintf("%s: got %s, wanted "+image, name, n.Got), n.Do)
	}
	return nil, f
}

// Text writes reports with an empty line between them.
func Text(w io.Writer, reports []bitstream.Report) {
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		_ = r.Text(w)
	}
}

// Info reads files and says what they are. One file's fault is an error about that file; of several, each fault goes to
// fault, and the error counts them.
func Info(names []string, in io.Reader, fault func(text string)) ([]bitstream.Report, error) {
	reports := []bitstream.Report{}
	var last *control.Failure
	failed, exit := 0, 0
	fail := func(f *control.Failure) {
		failed++
		exit = max(exit, f.Exit)
		last = f
		if len(names) > 1 {
			text := f.What
			if f.Why != "" {
				text += ": " + f.Why
			}
			fault(text)
		}
	}
	for _, name := range names {
		img, err := Read(name, in, bitstream.Options{})
		if name == "-" {
			in = nil
		}
		if err != nil {
			fail(control.Explain(name, err))
			continue
		}
		img.Segments = nil // several large files need not be held together
		reports = append(reports, bitstream.Report{File: name, Image: img})
		if img.Check.State == bitstream.Invalid {
			f := control.Explain(name, errors.New("integrity invalid: "+img.Check.Why))
			f.Do = "fetch or build the image again; it must not be loaded"
			fail(f)
		}
	}
	if failed == 0 {
		return reports, nil
	}
	if len(names) > 1 {
		last = control.Explain(fmt.Sprintf("%d of %d files", failed, len(names)), errors.New("no image, or not whole"))
		last.Do, last.Exit = "see above", exit
	}
	return reports, last
}
