package bitstream

import (
	"fmt"
	"strings"
)

// A Target is where an image is to go. What is 0 or empty is not known, and what needs it is skipped.
type Target struct {
	IDCode     uint32 // of the silicon
	Part       string // as people call it
	SlotOffset uint32 // in the flash; 0: the golden slot, which is loaded where another fails
	SlotBytes  int64
}

// A Severity says what a Finding asks for.
type Severity string

// Severities.
const (
	Refuse  Severity = "refuse"  // the image must not be written
	Warn    Severity = "warn"    // somebody should know
	Skipped Severity = "skipped" // could not be looked at, for want of what Text says
)

// A Finding is what Fit found. Rules that found nothing wrong say nothing.
type Finding struct {
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"`
	Text     string   `json:"text"`
}

// Fit compares an image with a target. The IDCODE inside decides, for that is what the device compares; the text of a
// header is only text.
func Fit(img *Image, t Target) []Finding {
	var out []Finding
	add := func(s Severity, rule, format string, args ...any) {
		out = append(out, Finding{s, rule, fmt.Sprintf(format, args...)})
	}
	fitDevice(img, t, add)
	switch img.Check.State {
	case Invalid:
		add(Refuse, "integrity", "damaged: %s", img.Check.Why)
	case Absent, NotCheckable:
		add(Skipped, "integrity", "%s: %s", img.Check.State, img.Check.Why)
	}
	if !img.Whole && img.Format != Unknown && img.Check.State != Invalid {
		add(Refuse, "whole", "the image is not whole: something is cut off")
	}
	if img.Partial {
		add(Refuse, "partial", "a partial image changes a running design; a flash needs a whole one")
	}
	if img.Secret {
		add(Warn, "encrypted", "encrypted: the device's key decides whether it loads")
	}
	fitSlot(img, t, add)
	fitJumps(img, t, add)
	return out
}

func fitDevice(img *Image, t Target, add func(Severity, string, string, ...any)) {
	switch {
	case len(img.IDCodes) == 0:
		add(Skipped, "idcode", "the image holds no IDCODE: whether it is for this device cannot be known")
	case t.IDCode == 0:
		add(Skipped, "idcode", "the device's IDCODE is not known")
	case !sameDevice(img.IDCodes[0].Value, t.IDCode):
		add(Refuse, "idcode", "the image is for %s, the device is %s", describe(img.IDCodes[0].Value), describe(t.IDCode))
	}
	if img.Part == "" {
		add(Skipped, "part", "the image names no part")
		return
	}
	if len(img.IDCodes) > 0 {
		if names := Names(img.IDCodes[0].Value); len(names) > 0 && !samePart(img.Part, names) {
			add(Warn, "part", "the image's text says %s, its IDCODE is %s: the IDCODE counts", img.Part, describe(img.IDCodes[0].Value))
		}
	}
	switch {
	case t.IDCode != 0 && len(Names(t.IDCode)) > 0:
		if !samePart(img.Part, Names(t.IDCode)) {
			add(Warn, "part", "the image's text says %s, the device is %s", img.Part, describe(t.IDCode))
		}
	case t.Part == "":
		add(Skipped, "part", "the device's part is not known")
	case known(img.Part) == "" || known(t.Part) == "":
		add(Skipped, "part", "%s and %s: one of them is not known here", img.Part, t.Part)
	case known(img.Part) != known(t.Part):
		add(Warn, "part", "the image's text says %s, the device is %s", img.Part, t.Part)
	}
}

// describe is an IDCODE with the names of its parts.
func describe(id uint32) string {
	names := Names(id)
	if len(names) == 0 {
		return fmt.Sprintf("0x%08x", id)
	}
	return fmt.Sprintf("%s (0x%08x)", strings.Join(names, " or "), id)
}

func fitSlot(img *Image, t Target, add func(Severity, string, string, ...any)) {
	if len(img.Segments) == 0 {
		add(Refuse, "content", "%s is not for writing to a flash as it is", img.Format)
		return
	}
	first, last := img.Segments[0], img.Segments[len(img.Segments)-1]
	end := int64(last.Address) + int64(len(last.Data))
	if t.SlotBytes == 0 {
		add(Skipped, "slot", "the slot's size is not known")
		return
	}
	if end <= t.SlotBytes && (first.Address == 0 || t.SlotOffset == 0) {
		return // counts from the slot's start
	}
	if first.Address == 0 {
		add(Refuse, "slot", "the image has %d bytes, the slot %d", end, t.SlotBytes)
		return
	}
	if from, to := int64(t.SlotOffset), int64(t.SlotOffset)+t.SlotBytes; int64(first.Address) < from || end > to {
		add(Refuse, "slot", "the file is for flash addresses 0x%08x to 0x%08x, the slot is 0x%08x to 0x%08x", first.Address, end-1, from, to-1)
	}
}

// fitJumps looks at where the stream sends the device. Which image runs is the card's choice of a slot: an image that goes
// on to another by itself takes that choice away. Golden may: a device ignores IPROG while it falls back, so that golden
// can try another image first; but not when it goes to itself.
func fitJumps(img *Image, t Target, add func(Severity, string, string, ...any)) {
	for _, j := range img.Jumps {
		// With flashes of more than 16 MiB the register holds an address without its lowest byte.
		near, far := int64(j.To&0x1fffffff), int64(j.To&0xffffff)<<8
		inside := func(a int64) bool { return a >= int64(t.SlotOffset) && a < int64(t.SlotOffset)+t.SlotBytes }
		switch {
		case !j.Now && t.SlotBytes != 0 && (near == int64(t.SlotOffset) || far == int64(t.SlotOffset)):
		case !j.Now:
			add(Warn, "jump", "the image sets WBSTAR to 0x%08x: an IPROG of its own design goes there, whichever slot the card would choose", j.To)
		case t.SlotBytes == 0:
			add(Skipped, "jump", "the image goes to 0x%08x by itself (IPROG); whether it may depends on the slot, which is not known", j.To)
		case t.SlotOffset != 0:
			add(Refuse, "jump", "the image goes to 0x%08x by itself (IPROG): the card would not run what is in this slot; make it without a next configuration address", j.To)
		case inside(near) && inside(far):
			add(Refuse, "jump", "the image goes to 0x%08x by itself (IPROG), which is in its own slot: it would be loaded over and over", j.To)
		default:
			add(Warn, "jump", "the image goes to 0x%08x by itself (IPROG): golden runs only where what is there fails to load", j.To)
		}
	}
}
