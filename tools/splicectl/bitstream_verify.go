package main

import (
	"context"

	"github.com/spf13/cobra"

	"splicenic/bitstream"
	"splicenic/tools/control"
	"splicenic/tools/imagefile"
	"splicenic/tools/signing"
)

func bitstreamVerifyCommand(e *env) *cobra.Command {
	var w signing.Wanted
	c := leaf("verify FILE", "Whether an image may be loaded: signature, contents, part, board, digests", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		img, err := imagefile.Read(args[0], imagefile.Until(ctx, e.in), bitstream.Options{})
		if err != nil {
			return err
		}
		v, err := signing.Verify(args[0], img, w)
		if err != nil {
			return err
		}
		if err := say(e, v, signing.Text); err != nil {
			return err
		}
		if v.Accepted {
			return nil
		}
		return control.Refuse(args[0]+" is refused", v.Reason(), "splicectl bitstream info says what the file holds")
	})
	c.Long = c.Short + ".\n\nA signature counts when its key is in a file that --key names, or in " + signing.KeyDir + ". What --idcode and --board do not name\nis not compared; bitstream load compares it with the card."
	c.ValidArgsFunction = oneFile
	f := c.Flags()
	f.StringArrayVar(&w.Keys, "key", nil, "file with a trusted public key; may be given several times; empty: those in "+signing.KeyDir)
	f.StringVar(&w.IDCode, "idcode", "", "of the card's part, hexadecimal")
	f.Uint32Var(&w.Board, "board", 0, "type of the card's board; 0: do not compare")
	f.StringVar(&w.ForHost, "for-host", "", "release of this program that will drive the image, if not this one")
	f.BoolVar(&w.Unsigned, "unsigned", false, "let an image pass that nobody signed")
	free(c, "idcode", "board", "for-host")
	return c
}
