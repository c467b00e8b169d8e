package slots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"splicenic/bitstream/program"
	"splicenic/tools/control"
)

// Plan compares an image with a card, refuses what must not be written, and says what a load would do.
func Plan(ctx context.Context, s *Session, img *Image, r Request, progress func(program.Event)) (*program.Plan, error) {
	id, err := s.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("identify the card: %w", err)
	}
	o := program.Options{Slot: r.Slot, Golden: r.Golden, Running: r.Running, Boots: r.Boots, About: img.About(r.File), Progress: progress}
	if r.Raw {
		p, err := program.NewRawPlan(ctx, s.Card, img.Segments, o)
		return annotated(p, r, img.Notes), explain(r.File+" is not loaded", err)
	}
	var slot *program.Slot
	if g, err := s.Geometry(ctx); err == nil {
		if at := img.image.Segments[0].Address; o.Slot == program.Auto && at != 0 { // the file has chosen
			o.Slot = slices.IndexFunc(g.Slots, func(s program.Slot) bool { return at >= s.Offset && at-s.Offset < s.Bytes })
			if o.Slot < 0 {
				return nil, control.Refuse(r.File+" is not loaded", fmt.Sprintf("the file is for flash address %#08x, which is in no slot of this card", at), "build the file for a slot's address, or for address 0 and name a --slot")
			}
		}
		if o.Slot >= 0 && o.Slot < len(g.Slots) {
			slot = &g.Slots[o.Slot]
		}
	}
	notes, err := img.Fit(r.File, id, slot)
	if err != nil {
		return nil, err
	}
	notes = append(notes, img.Notes...)
	p, err := program.NewPlan(ctx, s.Card, img.Bytes, o)
	return annotated(p, r, notes), explain(r.File+" is not loaded", err)
}

// annotated adds notes, and what was forced.
func annotated(p *program.Plan, r Request, notes []string) *program.Plan {
	if p == nil {
		return nil
	}
	p.Notes = append(p.Notes, notes...)
	for _, f := range []struct {
		is         bool
		flag, what string
	}{
		{r.Golden && p.Slot <= 0, "--force-golden", "the golden slot may be written"},
		{r.Running, "--force-running", "the slot whose image runs may be written"},
		{r.Unsigned, "--unsigned", "a signature is not asked for"},
		{r.Raw, "--raw", "nothing is asked of the bytes"},
	} {
		if f.is {
			p.Notes = append(p.Notes, "forced, "+f.flag+": "+f.what)
		}
	}
	return p
}

// explain makes refusals of the engine's those of the command.
func explain(what string, err error) error {
	if r, ok := errors.AsType[*program.Refused](err); ok {
		return control.Refuse(what, r.Error(), r.Do)
	}
	return err
}

// Run does what a plan says.
func Run(ctx context.Context, p *program.Plan, progress func(program.Event)) error {
	return explain("the image is not loaded", p.Run(ctx, progress))
}

// Describe writes a plan for a person.
func Describe(w io.Writer, p *program.Plan) {
	to := fmt.Sprintf("slot %d", p.Slot)
	if p.Slot < 0 {
		to = "the flash, raw"
	}
	fmt.Fprintf(w, "%d bytes, SHA-256 %s\nto %s, at %#x\n", p.Bytes, p.SHA256, to, p.Offset)
	if p.Nothing() && p.Record {
		fmt.Fprintf(w, "nothing to write: the flash holds these bytes already; only the slot's record changes, to %s\n", p.State)
	} else if p.Nothing() {
		fmt.Fprintln(w, "nothing to do: the flash holds these bytes already")
	} else {
		fmt.Fprintf(w, "sectors: %d to write, %d to erase, %d hold already what they should; about %s\n", p.Write, p.Erase, p.Skip, seconds(p.Seconds))
		runs(w, p)
	}
	if p.Resumes {
		fmt.Fprintf(w, "goes on with a load that was cut short after %d sectors\n", p.Written)
	}
	if p.Boots {
		fmt.Fprintln(w, "then the card boots: it leaves its bus and comes back")
	} else {
		fmt.Fprintln(w, "no reset: what runs goes on running")
	}
	for _, n := range p.Notes {
		fmt.Fprintln(w, "note:", n)
	}
}

// runs writes steps that do the same to sectors side by side in one line.
func runs(w io.Writer, p *program.Plan) {
	for i := 0; i < len(p.Steps); {
		s, k := p.Steps[i], i+1
		for k < len(p.Steps) && p.Steps[k].Erase == s.Erase && p.Steps[k].Write == s.Write && p.Steps[k].Address-p.Steps[k-1].Address == p.SectorBytes() {
			k++
		}
		what := "leave"
		switch {
		case s.Erase && s.Write:
			what = "erase, write"
		case s.Erase:
			what = "erase"
		case s.Write:
			what = "write"
		}
		fmt.Fprintf(w, "  %-12s %#08x", what, s.Address)
		if k-i > 1 {
			fmt.Fprintf(w, " to %#08x, %d sectors", p.Steps[k-1].Address, k-i)
		}
		fmt.Fprintln(w)
		i = k
	}
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 50*time.Millisecond {
		return "0.1s"
	}
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
