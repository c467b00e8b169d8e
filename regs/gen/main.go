// Command gen writes everything that is derived from package spec: the Go files of package regs, registers.md, the C
// header and the SystemVerilog package. It runs in the regs directory:
//
//	go generate ./regs
//	cd regs && go run ./gen -check
//
// With -check it writes nothing and fails where a file is not what it would write.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"splicenic/regs/spec"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	fs := flag.NewFlagSet("gen", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("o", ".", "directory to write to")
	check := fs.Bool("check", false, "compare with the files instead of writing them")
	if err := fs.Parse(args); err != nil {
		return err
	}
	files, err := generate(spec.Card())
	if err != nil {
		return err
	}
	if *check {
		return compare(*dir, files)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(*dir, name), files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the contents of every generated file by name. Parts run in a fixed order, so that a clash of names
// reads the same each time.
func generate(m *spec.Map) (map[string][]byte, error) {
	g := &goWriter{m: m, seen: map[string]string{}}
	g.reserve()
	files := map[string][]byte{
		"registers.md":     markdown(m),
		"splicenic.h":      cHeader(m),
		"splicenic_pkg.sv": systemVerilog(m),
	}
	for _, f := range []struct {
		name string
		part func()
	}{
		{"registers_gen.go", g.registers},
		{"formats_gen.go", g.formats},
		{"codecs_gen.go", g.codecs},
		{"memories_gen.go", g.memories},
		{"tables_gen.go", g.tables},
	} {
		src, err := g.file(f.part)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", f.name, err)
		}
		files[f.name] = src
	}
	return files, errors.Join(g.errs...)
}

// compare reports every file that differs from what would be written.
func compare(dir string, files map[string][]byte) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !bytes.Equal(got, files[name]) {
			errs = append(errs, fmt.Errorf("%s is out of date: run go generate ./regs", name))
		}
	}
	return errors.Join(errs...)
}
