package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"splicenic/driver"
)

// A Report is what the demo shows in the end, and what `demo -o json` prints.
type Report struct {
	Mode     string         `json:"mode"` // namespaces or memory
	Why      string         `json:"why"`  // why not namespaces
	Requests Requests       `json:"requests"`
	Servers  map[string]int `json:"servers"` // requests each got
	Card     Card           `json:"card"`
}

// Requests counts requests.
type Requests struct {
	Total    int       `json:"total"`
	OK       int       `json:"ok"`
	Failed   int       `json:"failed"`
	Seconds  float64   `json:"seconds"`
	MedianMs float64   `json:"median_ms"`
	SlowMs   float64   `json:"slowest_ms"`
	List     []Outcome `json:"list"`
}

// An Outcome is how one request went.
type Outcome struct {
	Number int     `json:"number"`
	Host   string  `json:"host"`
	Path   string  `json:"path"`
	Client string  `json:"client"`
	Server string  `json:"server"` // as the answer says
	Ms     float64 `json:"ms"`
	Error  string  `json:"error,omitempty"`
	sight
}

// Card is what the card's registers say after the last request.
type Card struct {
	Body     string         `json:"body"`
	Pages    Count          `json:"pages"`
	Heads    Count          `json:"heads"`
	Counters map[string]any `json:"counters"` // nested by block, instance and register; zeros left out

	flat []driver.Counter
}

// Count is how many of something are free.
type Count struct {
	Free  uint32 `json:"free"`
	Total uint32 `json:"total"`
}

// count takes the counters that are not zero.
func (r *Report) count(counters []driver.Counter) {
	r.Card.Counters = map[string]any{}
	for _, c := range counters {
		if c.Value == 0 {
			continue
		}
		r.Card.flat = append(r.Card.flat, c)
		m, name := r.Card.Counters, c.Name
		for {
			part, rest, more := strings.Cut(name, ".")
			if !more {
				m[part] = c.Value
				break
			}
			next, ok := m[part].(map[string]any)
			if !ok {
				next = map[string]any{}
				m[part] = next
			}
			m, name = next, rest
		}
	}
}

// A board collects outcomes and shows them as they come.
type board struct {
	mu     sync.Mutex
	w      io.Writer // nil: show nothing
	report *Report
	times  []float64
}

func newBoard(w io.Writer, r *Report) *board {
	r.Servers = map[string]int{}
	r.Requests.List = []Outcome{}
	if w != nil {
		fmt.Fprintf(w, "%4s  %-34s %-7s %6s %10s %12s %10s\n", "#", "request", "server", "n", "L", "a = a0 - a1", "time")
	}
	return &board{w: w, report: r}
}

// add takes an outcome; want are the servers the request may go to.
func (b *board) add(o Outcome, want []string) {
	if o.Error == "" && !slices.Contains(want, o.Server) {
		o.Error = fmt.Sprintf("answered by %q, want %s", o.Server, strings.Join(want, " or "))
	}
	if o.Error == "" && serverNamed(o.server.Addr()) != o.Server {
		o.Error = fmt.Sprintf("answered by %q, the page names %v", o.Server, o.server)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	rs := &b.report.Requests
	rs.Total++
	rs.List = append(rs.List, o)
	b.times = append(b.times, o.Ms)
	if o.Error != "" {
		rs.Failed++
	} else {
		rs.OK++
		b.report.Servers[o.Server]++
	}
	if b.w == nil {
		return
	}
	if o.Error != "" {
		fmt.Fprintf(b.w, "%4d  %-34s FAILED: %s\n", o.Number, o.Host+o.Path, o.Error)
		return
	}
	fmt.Fprintf(b.w, "%4d  %-34s %-7s %6d %#10x %#12x %7.3f ms\n", o.Number, o.Host+o.Path, o.Server, o.N, o.L, o.Delta, o.Ms)
}

// end computes what needs all outcomes.
func (b *board) end(spent time.Duration) {
	rs := &b.report.Requests
	rs.Seconds = spent.Seconds()
	slices.SortFunc(rs.List, func(x, y Outcome) int { return x.Number - y.Number })
	if slices.Sort(b.times); len(b.times) > 0 {
		rs.MedianMs, rs.SlowMs = b.times[len(b.times)/2], b.times[len(b.times)-1]
	}
}

// Summary writes the end of a report for a person.
func Summary(w io.Writer, r *Report) {
	fmt.Fprintf(w, "\n%d requests: %d ok, %d failed, in %.2f s; median %.3f ms, slowest %.3f ms\n",
		r.Requests.Total, r.Requests.OK, r.Requests.Failed, r.Requests.Seconds, r.Requests.MedianMs, r.Requests.SlowMs)
	for _, s := range servers {
		fmt.Fprintf(w, "  %-6s %4d\n", s.name, r.Servers[s.name])
	}
	fmt.Fprintf(w, "the card (%s): %d of %d pages and %d of %d head buffers free; its counters, read from the registers:\n",
		r.Card.Body, r.Card.Pages.Free, r.Card.Pages.Total, r.Card.Heads.Free, r.Card.Heads.Total)
	for _, c := range r.Card.flat {
		for _, block := range []string{"port.", "parser.", "connection.", "cam.", "pmu.", "url.", "amu.", "head."} {
			if strings.HasPrefix(c.Name, block) && !strings.Contains(c.Name, "_size") {
				fmt.Fprintf(w, "  %-34s %10d\n", c.Name, c.Value)
			}
		}
	}
}
