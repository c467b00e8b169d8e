// Emuimage makes images of the emulated card: what a flash of it holds, to try the bitstream commands on.
//
//	go run ./tools/emuimage -o new.bit -name next -version 2.0.0 -pages 65536
//	go run ./tools/emuimage -o old.bit -version 0.9.0 -older        # of a register map that this host does not know
//	go run ./tools/emuimage -flash card.flash -version 0.9.0        # a flash with it as golden: card serve --flash card.flash
//
// An image says who it is and how large the card's memories are. It is a stream of the part that the card says it is, with
// IDCODE and checks, and loads in no other. Without -bytes it is as short as it can be; with -bytes 9730652 as long as a
// real one of the part. At least one of -o and -flash is needed; what they name is replaced.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"splicenic/emu/image"
	"splicenic/regs"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr, time.Now())
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "emuimage:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

// errUsage: the command line is to blame.
var errUsage = errors.New("see -help")

// older is the digest of no map.
const older = regs.DataPathDigest ^ 1<<16

func run(args []string, out, messages io.Writer, now time.Time) error {
	f := flag.NewFlagSet("emuimage", flag.ContinueOnError)
	f.SetOutput(messages)
	bit := f.String("o", "", "write a .bit file")
	dump := f.String("flash", "", "write a flash with the image in its golden slot")
	name := f.String("name", "emulator", "name of the image")
	version := f.String("version", "1.0.0", "version of the image")
	code := f.String("user-code", "1", "user-access word, a number")
	pages := f.Uint("pages", 0, "pages of the card; 0: as many as without an image of one's own")
	digest := f.String("digest", "", "digest of the register map: 8 hexadecimal digits, or all 64; empty: this tree's")
	foreign := f.Bool("older", false, "of a register map that no host knows")
	bytes := f.Int("bytes", 0, "length of the stream, filled with empty frames; 0: as short as it can be")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	usage := func(format string, args ...any) error { return fmt.Errorf(format+": %w", append(args, errUsage)...) }
	switch {
	case f.NArg() > 0:
		return usage("unexpected %q", f.Arg(0))
	case *bit == "" && *dump == "":
		return usage("say with -o or -flash what to write")
	case *foreign && *digest != "":
		return usage("-older and -digest both say which register map")
	case *pages > 1<<32-1:
		return usage("-pages %d: too many", *pages)
	}
	p := image.Params{Name: *name, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry{Pages: uint32(*pages)}}
	var err error
	if p.Version, err = parseVersion(*version); err != nil {
		return usage("-version %q: %w", *version, err)
	}
	user, err := strconv.ParseUint(*code, 0, 32)
	if err != nil {
		return usage("-user-code %q: a number of 32 bits", *code)
	}
	p.UserCode = uint32(user)
	if *foreign {
		p.DataPathDigest = older
	}
	if *digest != "" {
		if p.DataPathDigest, err = parseDigest(*digest); err != nil {
			return usage("-digest %q: %w", *digest, err)
		}
	}
	return write(p, image.Options{Bytes: *bytes}, *bit, *dump, out, now)
}

func write(p image.Params, o image.Options, bit, dump string, out io.Writer, now time.Time) error {
	if bit != "" {
		b, err := image.EncodeBit(p, o, now.Format("2006/01/02"), now.Format("15:04:05"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(bit, b, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s %s, data-path digest %08x, %d bytes\n", bit, p.Name, p.Version, p.DataPathDigest, len(b))
	}
	if dump != "" {
		b, err := image.Encode(p, o) // golden starts at 0, and what a file lacks is blank
		if err != nil {
			return err
		}
		if err := os.WriteFile(dump, b, 0o644); err != nil {
			return err
		}
		if err := os.Remove(dump + ".board"); err != nil && !errors.Is(err, os.ErrNotExist) { // another flash's
			return err
		}
		fmt.Fprintf(out, "%s: a flash with %s %s as golden, data-path digest %08x\n", dump, p.Name, p.Version, p.DataPathDigest)
	}
	return nil
}

func parseVersion(s string) (v image.Version, err error) {
	parts := strings.Split(s, ".")
	if len(parts) != len(v) {
		return v, errors.New("major.minor.patch")
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return v, errors.New("three numbers")
		}
		v[i] = uint32(n)
	}
	return v, nil
}

// parseDigest reads a digest as the directory holds it, or as manifests do, of which that is the start.
func parseDigest(s string) (uint32, error) {
	if len(s) != 8 && len(s) != 64 || strings.Trim(s, "0123456789abcdefABCDEF") != "" {
		return 0, errors.New("8 or 64 hexadecimal digits")
	}
	n, err := strconv.ParseUint(s[:8], 16, 32)
	return uint32(n), err
}
