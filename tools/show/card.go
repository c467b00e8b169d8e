package show

import (
	"fmt"
	"io"
	"strings"

	"splicenic/runtime/view"
	"splicenic/tools/control"
)

// Silicon says what hardware a geometry stands for.
type Silicon struct {
	CAMBits        uint64 `json:"cam_bits"`
	CAMDevices     uint64 `json:"cam_devices"` // of 18 Mbit each
	PageBytes      uint64 `json:"page_bytes"`
	HeadBytes      uint64 `json:"head_bytes"`
	Text           string `json:"text"`
	AddressesInOne uint64 `json:"addresses_in_one_device"` // keys of 64 bits, addresses without ports
}

// camDevice is the CAM part that the arithmetic is in: 18 Mbit.
const camDevice = 18 << 20

// SiliconOf computes it. A CAM device of 18 Mbit holds 288K words of 64 bits, 128K of 144 or 64K of 288.
func SiliconOf(geometry map[string]uint32) Silicon {
	g := func(name string) uint64 { return uint64(geometry[name]) }
	words := g("cam_client_words") + g("cam_server_words")
	s := Silicon{
		CAMBits:        words * g("cam_word_bits"),
		PageBytes:      g("pages") * g("page_bytes"),
		HeadBytes:      g("heads") * g("head_bytes"),
		AddressesInOne: camDevice / 64,
	}
	s.CAMDevices = (s.CAMBits + camDevice - 1) / camDevice
	s.Text = fmt.Sprintf("%d words of %d bits are %d Mbit of CAM, %d devices of 18 Mbit (one holds 288K words of 64 bits, 128K of 144 or 64K of 288); %d pages of %d bytes are %s of SSRAM; %d head buffers of %d bytes are %s of DRAM",
		words, g("cam_word_bits"), s.CAMBits>>20, s.CAMDevices, g("pages"), g("page_bytes"), size(s.PageBytes), g("heads"), g("head_bytes"), size(s.HeadBytes))
	return s
}

func size(n uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// CardInfo writes who the card is and what silicon it stands for.
func CardInfo(w io.Writer, c view.Card) {
	g := c.Geometry
	s := SiliconOf(g)
	pairs(w,
		[2]string{"card", c.Name},
		[2]string{"body", c.Body},
		[2]string{"pci id", fmt.Sprintf("%04x:%04x", c.VendorID, c.DeviceID)},
		[2]string{"serial", c.Serial},
		[2]string{"image", strings.TrimSpace(c.Image + " " + c.ImageVersion)},
		[2]string{"map", fmt.Sprintf("shell %s, data path %s%s", c.ShellDigest, c.DataPathDigest, mismatch(c.Mismatch))},
		[2]string{"pages", fmt.Sprintf("%d of %d bytes: L = n × %d", g["pages"], g["page_bytes"], g["page_bytes"])},
		[2]string{"heads", fmt.Sprintf("%d of %d bytes", g["heads"], g["head_bytes"])},
		[2]string{"CAM client", fmt.Sprintf("%d words of %d bits", g["cam_client_words"], g["cam_word_bits"])},
		[2]string{"CAM server", fmt.Sprintf("%d words of %d bits", g["cam_server_words"], g["cam_word_bits"])},
		[2]string{"pipelines", fmt.Sprint(g["pipelines"])},
		[2]string{"silicon", s.Text},
	)
}

func mismatch(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// Cards writes a line a card of this machine.
func Cards(w io.Writer, cards []control.Found) {
	table(w, "CARD USABLE DRIVER GROUP NUMA LINK WHY-NOT NEXT", func(row func(...any)) {
		for _, c := range cards {
			row(c.Name, yes(c.Usable), c.Driver, number(c.Group), number(c.NUMANode), c.Link, c.Why, c.Next)
		}
	})
}

// Served writes what a card process says.
func Served(w io.Writer, s control.Served) {
	fmt.Fprintf(w, "card %s is served at %s by process %d\n", s.Card, s.Socket, s.PID)
}

// Binding writes the writes that changed a card's driver, or would.
func Binding(w io.Writer, b control.Binding) {
	for _, line := range b.Writes {
		fmt.Fprintln(w, line)
	}
	to := "no driver has"
	if b.To != "" {
		to = "driver " + b.To + " has"
	}
	switch {
	case len(b.Writes) == 0:
		fmt.Fprintf(w, "%s %s already\n", to, b.Address)
	case !b.DryRun:
		fmt.Fprintf(w, "%s %s now\n", to, b.Address)
	}
}

// Checks writes a line a check of the machine, and some for each of what is around a card.
func Checks(w io.Writer, checks []control.Finding) {
	table(w, "CHECK STATUS FOUND WHY FIX", func(row func(...any)) {
		for _, c := range checks {
			if c.Where == "" {
				row(c.Name, c.Status, c.Number, c.Why, c.Fix)
			}
		}
	})
	for _, c := range checks {
		if c.Where == "" {
			continue
		}
		fmt.Fprintf(w, "%-4s  %s (%s)", c.Status, c.Name, c.Where)
		if c.Number != "" {
			fmt.Fprint(w, ": ", c.Number)
		}
		fmt.Fprintln(w)
		for _, more := range [][2]string{{"why", c.Why}, {"do", c.Fix}} {
			if more[1] != "" {
				fmt.Fprintf(w, "      %s: %s\n", more[0], more[1])
			}
		}
	}
}

// number is an index that is negative where it is not known.
func number(n int) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// Changed writes what a configuration changes.
func Changed(w io.Writer, c control.Changes) {
	if c.Generation != 0 {
		fmt.Fprintf(w, "generation %d in force\n", c.Generation)
	}
	if m := c.Capacity; m != nil {
		fmt.Fprintf(w, "the routes take %d of %d rules and %d of %d nodes of the URL table; %d slow\n", m.Rules, m.RuleRoom, m.Nodes, m.NodeRoom, m.Slow)
	}
	if c.Refused != "" {
		fmt.Fprintf(w, "the card would refuse this: %s\n", c.Refused)
	}
	if len(c.Changes) == 0 {
		fmt.Fprintln(w, "nothing changed")
		return
	}
	table(w, "CHANGE KIND NAME FROM TO", func(row func(...any)) {
		for _, x := range c.Changes {
			row(x.Op, x.Kind, x.Name, x.From, x.To)
		}
	})
}
