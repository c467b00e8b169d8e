package slots

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/bitstream/program"
)

// A Progress tells somebody how a load gets on: with a bar that is written over on a terminal, a line for each tenth
// elsewhere, or a line of JSON for each event.
type Progress struct {
	w              io.Writer
	json, terminal bool
	phase          string
	tenth          int64
	width          int // of the line on the terminal that is not ended
}

// NewProgress tells w.
func NewProgress(w io.Writer, asJSON bool) *Progress {
	return &Progress{w: w, json: asJSON, terminal: isTerminal(w)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

const barWidth = 20

// Show says what the load is at.
func (p *Progress) Show(v program.Event) {
	if p.json {
		_ = json.NewEncoder(p.w).Encode(v)
		return
	}
	total := max(v.Total, 1)
	if v.Phase != p.phase {
		p.End()
		p.phase, p.tenth = v.Phase, -1
	}
	left := time.Duration(v.ETA * float64(time.Second)).Round(time.Second)
	figures := fmt.Sprintf("%3d %%  %s, %s left", 100*v.Done/total, amounts(v), left)
	if !p.terminal {
		if t := 10 * v.Done / total; t > p.tenth {
			p.tenth = t
			fmt.Fprintf(p.w, "%-7s %s\n", v.Phase, figures)
		}
		return
	}
	full := int(barWidth * v.Done / total)
	line := fmt.Sprintf("%-7s [%s%s] %s", v.Phase, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), figures)
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = len(line)
	if v.Done == v.Total {
		p.End()
	}
}

// End ends the line that a bar stands in: something else is printed next.
func (p *Progress) End() {
	if p.width > 0 {
		fmt.Fprintln(p.w)
		p.width = 0
	}
}

// amounts are how much of how much, and how fast.
func amounts(v program.Event) string {
	unit, size := "KiB", 1024.0
	switch {
	case v.Total < 1024:
		return fmt.Sprintf("%d of %d bytes", v.Done, v.Total)
	case v.Total >= 1<<20:
		unit, size = "MiB", 1<<20
	}
	return fmt.Sprintf("%.1f of %.1f %s, %.2f MiB/s", float64(v.Done)/size, float64(v.Total)/size, unit, v.Rate/(1<<20))
}
