package signing

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"splicenic/bitstream"
	"splicenic/bitstream/container"
	"splicenic/regs"
	"splicenic/tools/control"
)

// Wanted says what an image is compared with, as flags give it.
type Wanted struct {
	Keys     []string // files; none: those in KeyDir
	IDCode   string   // hexadecimal; empty: not compared
	Board    uint32   // 0: not compared
	ForHost  string   // empty: this program
	Unsigned bool
}

// Admission is what this host asks of an image, whatever the card.
func (w Wanted) Admission() (bitstream.Admission, error) {
	a := bitstream.Admission{Board: w.Board, ShellDigest: regs.ShellDigest256, DataPathDigest: regs.DataPathDigest256, Unsigned: w.Unsigned}
	var err error
	if a.Trusted, err = Trusted(w.Keys); err != nil {
		return a, err
	}
	if w.IDCode != "" {
		id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(w.IDCode), "0x"), 16, 32)
		if err != nil {
			return a, control.Usage(fmt.Sprintf("%q is no IDCODE", w.IDCode), "give it as 8 hexadecimal digits, as splicectl card info does")
		}
		a.IDCode = uint32(id)
	}
	if w.ForHost != "" {
		v, err := container.ParseVersion(w.ForHost)
		if err != nil {
			return a, control.Usage(err.Error(), "say it as in --for-host 1.2.3")
		}
		a.ForHost = &v
	}
	a.Host, _ = container.ParseVersion(control.ThisVersion().Version) // none of a release: a development build
	return a, nil
}

// A Verdict is what verify says.
type Verdict struct {
	File      string              `json:"file"`
	Format    bitstream.Format    `json:"format"`
	Integrity bitstream.Integrity `json:"integrity"`
	Key       string              `json:"key"` // that signed; empty: nobody did
	Accepted  bool                `json:"accepted"`
	Findings  []bitstream.Finding `json:"findings"`
	Notes     []string            `json:"notes,omitempty"` // about the file
}

// Verify compares an image with what is wanted.
func Verify(name string, img *bitstream.Image, w Wanted) (Verdict, error) {
	a, err := w.Admission()
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{File: name, Format: img.Format, Integrity: img.Check, Findings: bitstream.Admit(img, a), Notes: img.Notes}
	if img.Container != nil {
		v.Key = container.ID(img.Container.Key)
	}
	v.Accepted = !bitstream.Refused(v.Findings)
	return v, nil
}

// Reason is why the image is refused, in one line.
func (v Verdict) Reason() string {
	var why []string
	for _, f := range v.Findings {
		if f.Severity == bitstream.Refuse {
			why = append(why, f.Text)
		}
	}
	return strings.Join(why, "; ")
}

// Text writes a verdict for a person.
func Text(w io.Writer, v Verdict) {
	word := "refused"
	if v.Accepted {
		word = "accepted"
	}
	fmt.Fprintf(w, "%s: %s, %s\n", v.File, v.Format, word)
	if v.Key != "" {
		fmt.Fprintf(w, "%-9s %s\n", "key", v.Key)
	}
	integrity := string(v.Integrity.State)
	if v.Integrity.State == bitstream.Valid {
		integrity += fmt.Sprintf(" x%d", v.Integrity.Checks)
	}
	fmt.Fprintf(w, "%-9s %s\n", "integrity", integrity)
	for _, f := range v.Findings {
		fmt.Fprintf(w, "%-9s %s: %s\n", f.Severity, f.Rule, f.Text)
	}
	for _, n := range v.Notes {
		fmt.Fprintf(w, "%-9s %s\n", "note", n)
	}
}
