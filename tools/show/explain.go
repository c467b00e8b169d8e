package show

import (
	"fmt"
	"io"
	"text/tabwriter"

	"splicenic/runtime/view"
)

// Explanation writes what was decided about a connection, and what becomes of each field of its segments, each with the
// words that say so.
func Explanation(w io.Writer, x view.Explanation) {
	c := &x.Connection
	fmt.Fprintf(w, "connection %s at L = n × m = %s, %s\n", c.ID, c.L, c.State)
	for _, d := range x.Decisions {
		fmt.Fprintf(w, "\n%s: %s\n", d.What, d.Text)
		words(w, d.From)
	}
	if len(x.Rules) > 0 {
		fmt.Fprintln(w, "\nrules, in order of precedence:")
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, r := range x.Rules {
			why := "took the request"
			if !r.Took {
				why = "lost: " + r.Why
			}
			fmt.Fprintf(t, "  %d\t%s\t→ %s\t%s\n", r.Index, r.Rule, r.To, why)
		}
		t.Flush()
	}
	direction := ""
	for _, f := range x.Fields {
		if f.Direction != direction {
			direction = f.Direction
			fmt.Fprintf(w, "\n%s, each segment:\n", direction)
		}
		fmt.Fprintf(w, "  %s: %s\n", f.Field, f.Does)
		words(w, f.From)
	}
}

// words writes words with their places and values.
func words(w io.Writer, list []view.Word) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, x := range list {
		value := x.Value
		if value == "" {
			value = "not at hand"
		}
		fmt.Fprintf(t, "      %s\t%s\t%s\n", x.Name, x.At, value)
	}
	t.Flush()
}
