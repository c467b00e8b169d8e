package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"splicenic/runtime/view"
)

// table writes rows under a heading, columns aligned. What nothing is known about is a dash.
func table(w io.Writer, heading string, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(heading, " ", "\t"))
	rows(func(cells ...any) {
		for i, c := range cells {
			s := fmt.Sprint(c)
			if s == "" {
				s = "-"
			}
			if i > 0 {
				s = "\t" + s
			}
			fmt.Fprint(t, s)
		}
		fmt.Fprintln(t)
	})
	t.Flush()
}

// pairs writes lines of a name and a value.
func pairs(w io.Writer, lines ...[2]string) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\n", l[0], l[1])
	}
	t.Flush()
}

// Ports writes a line a port.
func Ports(w io.Writer, ports []view.Port) {
	table(w, "PORT MAC MTU LINK ENABLED ADDRESSES RX-FRAMES TX-FRAMES RX-LOST TX-LOST", func(row func(...any)) {
		for _, p := range ports {
			link := "down"
			if p.Link {
				link = strconv.Itoa(int(p.Mbps)) + "Mbit/s"
			}
			c := p.Counters
			row(p.Name, p.MAC, p.MTU, link, yes(p.Enabled), strings.Join(p.Addresses, ","), c["rx_frames"], c["tx_frames"],
				c["rx_disabled"]+c["rx_filtered"]+c["rx_oversize"]+c["rx_overrun"], c["tx_disabled"]+c["tx_dropped"])
		}
	})
}

// optional is a value that may be missing.
func optional[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// CAM writes a line an entry.
func CAM(w io.Writer, entries []view.CAMEntry) {
	table(w, "SLOT KIND VLAN ADDRESS PORT INDEX DESTINATION N GENERATION LEG", func(row func(...any)) {
		for _, e := range entries {
			row(optional(e.Slot), e.Kind, e.VLAN, e.Address, e.Port, e.Index, e.Destination, e.N, e.Generation, e.Leg)
		}
	})
}

// Rules writes a line a rule, in order of precedence.
func Rules(w io.Writer, rules []view.Rule) {
	var slow []string
	table(w, "ORDER INDEX SERVICE HOST PATH MATCH WHEN TO HITS DECIDES IN-FORCE", func(row func(...any)) {
		for _, r := range rules {
			decides := r.Decides
			if r.Slow != "" {
				decides += ", slow"
				slow = append(slow, fmt.Sprintf("slow: order %d of %s: %s", r.Order, r.Service, r.Slow))
			}
			row(r.Order, optional(r.Index), r.Service, r.Host, r.Path, r.Match, strings.Join(r.When, "; "), cmp.Or(r.Answer, r.Group), optional(r.Hits), decides, yes(r.InForce))
		}
	})
	for _, line := range slow {
		fmt.Fprintln(w, line)
	}
}

// Connections writes a line a connection.
func Connections(w io.Writer, cs []view.Connection) {
	table(w, "ID STATE CLIENT VIP SERVER METHOD SERVICE DELTA BYTES-IN BYTES-OUT IDLE AGE", func(row func(...any)) {
		for _, c := range cs {
			state := c.State
			if c.Template {
				state = "template"
			}
			row(c.ID, state, c.Client, c.VIP, c.Server, cmp.Or(c.Method, "-"), c.Service, fmt.Sprintf("%#08x", c.Delta), c.BytesClient, c.BytesServer, millis(c.IdleMS), millis(c.AgeMS))
		}
	})
}

func millis(ms uint32) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) + "s" }

// Document writes any answer as dotted names and values, sorted: what has no table of its own.
func Document(w io.Writer, doc any) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	walk("", doc, func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, value) })
	t.Flush()
}

func walk(name string, v any, line func(name, value string)) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			walk(join(name, k), v[k], line)
		}
	case []any:
		for i, x := range v {
			walk(name+"["+strconv.Itoa(i)+"]", x, line)
		}
	case nil:
		line(name, "-")
	case string:
		line(name, v)
	case float64: // any number, once it was JSON
		line(name, decimal(v))
	default:
		line(name, fmt.Sprint(v))
	}
}

// decimal writes integers in full, and fractions as short as they are told apart.
func decimal(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "." + b
}

// Select returns the part of a document that a dotted name stands for.
func Select(doc any, name string) (any, bool) {
	if name == "" {
		return doc, true
	}
	for part := range strings.SplitSeq(name, ".") {
		m, ok := doc.(map[string]any)
		if !ok {
			return nil, false
		}
		if doc, ok = m[part]; !ok {
			return nil, false
		}
	}
	return doc, true
}

// Answer writes an answer: the document itself, or text about what was decoded from it.
func Answer[T any](w io.Writer, asJSON bool, doc json.RawMessage, v T, text func(io.Writer, T)) error {
	if asJSON {
		return JSON(w, doc)
	}
	text(w, v)
	return nil
}

// JSON writes one document.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// With adds a value to a document.
func With(doc json.RawMessage, key string, v any) (json.RawMessage, error) {
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(doc, &m); err != nil {
		return nil, fmt.Errorf("add %s to an answer: %w", key, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("add %s to an answer: %w", key, err)
	}
	m[key] = b
	return json.Marshal(m)
}

// Line writes one line.
func Line(w io.Writer, text string) { fmt.Fprintln(w, text) }
