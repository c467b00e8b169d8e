package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"splicenic/bitstream"
	"splicenic/bitstream/container"
	"splicenic/tools/control"
	"splicenic/tools/imagefile"
	"splicenic/tools/signing"
)

func bitstreamKeygenCommand(e *env) *cobra.Command {
	return leaf("keygen NAME", "A pair of keys to sign images with: NAME.key, to be kept secret, and NAME.pub for machines that load them", cobra.ExactArgs(1), func(_ context.Context, args []string) error {
		p, err := signing.Keygen(args[0])
		if err != nil {
			return err
		}
		return say(e, p, func(w io.Writer, p signing.Pair) {
			fmt.Fprintf(w, "key %s: %s signs, %s verifies\na machine trusts it when %s lies in %s\n", p.ID, p.Private, p.Public, p.Public, signing.KeyDir)
		})
	})
}

// signed is what sign says.
type signed struct {
	File     string             `json:"file"`
	Key      string             `json:"key"`
	Manifest container.Manifest `json:"manifest"`
	Notes    []string           `json:"notes,omitempty"` // about the file that was signed
}

func bitstreamSignCommand(e *env) *cobra.Command {
	var r signing.Request
	var key, to string
	var force bool
	c := leaf("sign FILE", "A signed container of an image, with a manifest of what it is for", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		if key == "" || to == "" || r.Version == "" {
			return control.Usage("sign needs --key, --to and --version", "splicectl bitstream sign top.bit --key release.key --version 1.2.0 --to top.spl")
		}
		if err := imagefile.Writable(to, force); err != nil {
			return err
		}
		k, err := signing.PrivateKey(key)
		if err != nil {
			return err
		}
		img, err := imagefile.Read(args[0], imagefile.Until(ctx, e.in), bitstream.Options{})
		if err != nil {
			return err
		}
		r.Created = time.Now()
		b, err := signing.Sign(img, r, k)
		if err != nil {
			return err
		}
		f, err := container.Open(b)
		if err != nil {
			return err
		}
		if err := imagefile.Write(to, b, force); err != nil {
			return err
		}
		return say(e, signed{to, container.ID(f.Key), f.Manifest, img.Notes}, func(w io.Writer, s signed) {
			m := s.Manifest
			fmt.Fprintf(w, "%s: %s %s for board %d, part %s (IDCODE %08x), signed with key %s\n", s.File, m.Name, m.Version, m.Board, m.Part, m.IDCode, s.Key)
			fmt.Fprintf(w, "data path %.8s, shell %.8s, hosts from %s, rollback counter %d, %d bytes\n", m.DataPathDigest, m.ShellDigest, m.MinHost, m.Rollback, m.Bytes)
			for _, n := range s.Notes {
				fmt.Fprintln(w, "note:", n)
			}
		})
	})
	c.ValidArgsFunction = oneFile
	f := c.Flags()
	f.StringVar(&key, "key", "", "file with the private key")
	f.StringVar(&to, "to", "", "file to write")
	f.BoolVar(&force, "force", false, "replace the file if it is there")
	f.StringVar(&r.Version, "version", "", "of the image: major.minor.patch")
	f.StringVar(&r.Name, "name", "", "of the image; empty: the design's")
	f.Uint32Var(&r.Board, "board", 1, "type of the board it is for, as splicectl card info says it; 1 is the emulated card")
	f.StringVar(&r.MinHost, "min-host", "", "first release of this program that drives it; empty: any")
	f.Uint32Var(&r.Rollback, "rollback", 0, "counter: a card that took an image with a higher one refuses this")
	f.StringVar(&r.DataPathDigest, "data-path-digest", "", "SHA-256 of the data path's register map; empty: the one this program was built for")
	f.StringVar(&r.ShellDigest, "shell-digest", "", "likewise, of the shell's")
	free(c, "version", "name", "board", "min-host", "rollback", "data-path-digest", "shell-digest")
	return c
}
