package bitstream

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Report is what is said about a file. It encodes as JSON with the file's name beside the Image's facts.
type Report struct {
	File string `json:"file"`
	*Image
}

// MarshalJSON gives the user code as people write it, like IDCODEs.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Image // without methods, which would be the Report's
	out := struct {
		File string `json:"file"`
		*plain
		UserCode string `json:"user_code,omitempty"` // covers the Image's
	}{File: r.File, plain: (*plain)(r.Image)}
	if r.Image != nil && r.UserCode != nil {
		out.UserCode = hex32(*r.UserCode)
	}
	return json.Marshal(out)
}

// String is the integrity in one word of four, with the count where there is one.
func (i Integrity) String() string {
	if i.State == Valid {
		return fmt.Sprintf("%s x%d", i.State, i.Checks)
	}
	return string(i.State)
}

// Text writes the report, a fact a line. Of what a header may say and this one does not it says "unknown"; what a format has no
// place for has no line.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, Printable(value))
		}
	}
	line("file", r.File)
	format := string(r.Format)
	if r.Variant != "" {
		format += ", " + r.Variant
	}
	line("format", format)
	line("wrapping", strings.Join(r.Wrapping, ", "))
	line("vendor", r.Vendor)
	line("order", string(r.Order))
	for _, f := range [][2]string{{"design", r.Design}, {"part", r.Part}, {"date", r.Date}} {
		if f[1] == "" && r.Format != Blank {
			f[1] = "unknown"
		}
		line(f[0], f[1])
	}
	line("tool", r.Tool)
	for i, id := range r.IDCodes {
		name := "idcode"
		if len(r.IDCodes) > 1 {
			name = fmt.Sprintf("idcode %d", i+1)
		}
		line(name, strings.TrimSpace(hex32(id.Value)+" "+strings.Join(id.Names, ", ")))
	}
	if len(r.IDCodes) == 0 && r.Format != Blank {
		line("idcode", "none")
	}
	if r.UserCode != nil {
		line("user code", hex32(*r.UserCode))
	}
	line("size", fmt.Sprintf("%d bytes", r.FileSize))
	line("payload", fmt.Sprintf("%d bytes at %d", r.Payload.Bytes, r.Payload.Offset))
	line("whole", yes(r.Whole))
	line("compressed", yes(r.Packed))
	line("encrypted", yes(r.Secret))
	line("partial", yes(r.Partial))
	line("integrity", r.Check.String())
	line("why", r.Check.Why)
	for i, in := range r.Inner {
		text := fmt.Sprintf("%d bytes at %d", in.Bytes, in.Offset)
		if in.Format != "" {
			text += ", " + string(in.Format)
		}
		if in.Part != "" {
			text += ", " + in.Part
		}
		for _, id := range in.IDCodes {
			text += ", " + hex32(id.Value)
		}
		if in.Check.State != "" {
			text += ", " + in.Check.String()
		}
		line(fmt.Sprintf("image %d", i+1), text)
	}
	for i, g := range r.Gaps {
		if i == 16 {
			line("gaps", fmt.Sprint(len(r.Gaps)))
			break
		}
		line("gap", fmt.Sprintf("%d bytes at 0x%08x", g.Bytes, g.Offset))
	}
	for _, f := range r.Fields {
		line(f.Name, f.Value)
	}
	line("sha256", r.SHA256)
	for _, n := range r.Notes {
		line("note", n)
	}
	return t.Flush()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Printable is text from a file or a card as a terminal may show it: what is not printable is escaped, since it could be a
// line of its own or tell the terminal what to do.
func Printable(s string) string {
	q := strconv.Quote(s)
	if q[1:len(q)-1] == strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`) {
		return s
	}
	return q
}
