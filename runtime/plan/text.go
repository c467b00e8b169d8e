package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Text is the plan for a person: what was asked, the answer, and the arithmetic.
func (p *Plan) Text() string {
	var b strings.Builder
	g := &p.Given
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(what, answer, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\t%s\n", what, answer, fmt.Sprintf(format, args...))
	}
	cost := map[string]string{"documents": "as the documents have it", "measured": "measured on one core of this machine", "option": "as given"}[g.CostFrom]
	row("WHAT", "ANSWER", "FROM")
	row("rewriting a packet", nanos(g.CostNs), "%s", cost)
	row("throughput of a core", rate(p.Throughput), "%d bytes ÷ %s; %s packets a second", g.PacketBytes, nanos(g.CostNs), short(p.Packets))
	row("throughput of a port", rate(p.Wire), "%sbit/s, packets of %d bytes with 78 around them", short(g.PortRate), g.PacketBytes)
	row("servers of a director", digits(p.Servers), "%s ÷ %s a server", rate(min(p.Throughput, p.Wire)), rate(g.ServerRate))
	if p.Directors != nil {
		row("directors of round-robin DNS", short(*p.Directors), "%s by the method below that needs most; one more bears the loss of one", rate(g.Goal))
	}
	row("longest life", seconds(p.LongestLife), "%d pages ÷ %s connections a second: more on average, and pages run out", g.Pages, short(g.Rate))
	row("SYN flood empties the pages in", seconds(p.Flood.Seconds), "%d pages ÷ %s SYNs a second", g.Pages, short(g.SYNRate))
	with := "a page is taken when the client has proved itself"
	if f := p.Flood.Sufficient; f != nil {
		with += fmt.Sprintf("; a core answers %s SYNs a second, ", short(g.CookieRate))
		with += map[bool]string{true: "which is enough", false: "and more are lost, no page with them"}[*f]
	}
	row("the same with cookies", "never", "%s", with)
	row("connections of a FULLNAT server", strconv.FormatUint(p.Ports.PerServer, 10), "%d ports of a local address; a port rests %s, so %s new ones a second", g.LocalPorts, seconds(g.Rest), short(p.Ports.Rate))
	if p.Ports.Servers > 0 {
		row("connections of all of them", strconv.FormatUint(p.Ports.All, 10), "× %d servers, bounded by %s", p.Ports.Servers, p.Ports.Bound)
	}
	t.Flush()

	fmt.Fprintln(&b)
	fmt.Fprintln(t, "METHOD\tSERVERS\tPACKETS-THROUGH\tTHROUGHPUT\tBOUND\tSERVERS-OF-A-DIRECTOR\tDIRECTORS")
	for _, m := range p.Methods {
		fmt.Fprintf(t, "%s\t%d\t%s a response packet\t%s\t%s\t%s\t%s\n", m.Method, m.Servers, whole(m.Packets), rate(m.Throughput), m.Bound, digits(m.OfDirector), short(m.Directors))
	}
	t.Flush()

	fmt.Fprintln(&b)
	fmt.Fprintln(t, "KEYS\tWORDS\tBITS\tCAM\tDEVICES-OF-18-MBIT\tLOAD-OF-THIS-CARD")
	for _, c := range p.CAM {
		load := "-"
		if c.Load > 0 {
			load = strconv.FormatFloat(c.Load*100, 'f', 0, 64) + "%"
		}
		fmt.Fprintf(t, "%s\t%d + %d\t%d\t%s Mbit\t%d\t%s\n", c.Keys, c.Client, c.Server, c.Bits, digits(c.Mbit), c.Devices, load)
	}
	t.Flush()
	return b.String()
}

// digits writes three digits that count.
func digits(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// short writes a number with a prefix where it is large: 21k, 1.49M, 1G.
func short(v float64) string {
	for _, u := range []struct {
		from, factor float64
		prefix       string
	}{{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}} {
		if v >= u.from {
			return whole(v/u.factor) + u.prefix
		}
	}
	return whole(v)
}

// whole leaves out a fraction that is none.
func whole(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return digits(v)
}

// rate writes bytes a second.
func rate(v float64) string {
	switch {
	case v >= 1e9:
		return digits(v/1e9) + " GB/s"
	case v >= 1e6 || v == 0:
		return digits(v/1e6) + " MB/s"
	}
	return digits(v/1e3) + " kB/s"
}

func nanos(v float64) string {
	if v >= 1e3 {
		return whole(v/1e3) + " µs"
	}
	return whole(v) + " ns"
}

func seconds(v float64) string { return whole(v) + " s" }
