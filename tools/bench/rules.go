package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"splicenic/emu/ssram"
	"splicenic/emu/urltable"
	"splicenic/regs"
	"splicenic/runtime/rule"
)

// RulesConfig says how much Rules measures. Its zero value is the full measurement.
type RulesConfig struct {
	Rules  int // zero: 100,000; there are a tenth as many hosts
	Heads  int // request heads of one round; zero: 200,000
	Rounds int // the median counts; zero: 7

	Progress func(text string) // told what is being done; nil: nobody is
}

// RulesResult is what `bench rules` prints.
type RulesResult struct {
	Rules       int     `json:"rules"`
	Hosts       int     `json:"hosts"`
	CompileS    float64 `json:"compile_s"`   // of one core, all threads together, from routes to the image with its indexes
	TableBytes  int     `json:"table_bytes"` // of one bank: URL table and rule table
	TableShare  float64 `json:"table_share"` // of the entries that a bank of the URL table has
	HeadBytes   float64 `json:"head_bytes"`  // on average
	NsPerByte10 float64 `json:"ns_per_byte_10"`
	NsPerByte   float64 `json:"ns_per_byte"`
	CPU         string  `json:"cpu"`
	Go          string  `json:"go"`
}

// fewRules is what many rules are compared with.
const fewRules = 10

// Text is the result for a person.
func (r *RulesResult) Text() string {
	return fmt.Sprintf(`%s, %s, one core
compile   %.2f s: %d rules over %d hosts
table     %d bytes a bank, %.0f %% of the URL table
match     %.2f ns a byte: heads of %.0f bytes for random rules, parsed and matched
          %.2f ns with %d rules
`, r.CPU, r.Go, r.CompileS, r.Rules, r.Hosts, r.TableBytes, 100*r.TableShare, r.NsPerByte, r.HeadBytes, r.NsPerByte10, fewRules)
}

// Rules measures how fast routes become an image, and how fast heads are read and matched with few and with many rules.
// The rounds of both take turns, so that a busy neighbour slows both.
func Rules(ctx context.Context, cfg RulesConfig) (RulesResult, error) {
	if cfg.Rules == 0 {
		cfg.Rules = 100_000
	}
	if cfg.Heads == 0 {
		cfg.Heads = 200_000
	}
	if cfg.Rounds == 0 {
		cfg.Rounds = 7
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cfg.Progress(fmt.Sprintf("compiling %d rules", cfg.Rules))
	many, err := newMatching(cfg.Rules, min(3, cfg.Rounds))
	if err != nil {
		return RulesResult{}, err
	}
	defer many.close()
	few, err := newMatching(fewRules, 1)
	if err != nil {
		return RulesResult{}, err
	}
	defer few.close()
	cfg.Progress("reading and matching heads")
	var ns [2][]float64
	for range cfg.Rounds {
		for i, m := range [...]*matching{few, many} {
			if err := ctx.Err(); err != nil {
				return RulesResult{}, err
			}
			t, err := m.round(cfg.Heads)
			if err != nil {
				return RulesResult{}, err
			}
			ns[i] = append(ns[i], t)
		}
	}
	return RulesResult{
		Rules: cfg.Rules, Hosts: hostsFor(cfg.Rules), CompileS: median(many.compile), TableBytes: many.image.Bytes(),
		TableShare:  float64(len(many.image.Nodes)/regs.UrlNodeWords) / regs.MemUrlCount,
		HeadBytes:   float64(len(many.text)) / float64(len(many.heads)),
		NsPerByte10: median(ns[0]), NsPerByte: median(ns[1]), CPU: cpuModel(), Go: runtime.Version(),
	}, nil
}

func hostsFor(rules int) int { return max(rules/10, 1) }

// matching is a rule set in the memory of a card, and heads that its rules take.
type matching struct {
	image   *rule.Image
	memory  *ssram.Memory
	compile []float64 // seconds
	text    []byte    // all heads
	heads   []head
	request urltable.Request
}

type head struct {
	begin, end int
	rule       uint32
}

// headsOf is how many heads there are. Far more than the processor's branch predictor remembers.
const headsOf = 20_000

// newMatching compiles n rules several times and makes heads for them.
func newMatching(n, times int) (*matching, error) {
	m := &matching{}
	routes := routesOf(n)
	for range times {
		runtime.GC()
		start := processTime()
		im, err := rule.Compile([]rule.Service{{Name: "bench", Routes: routes}}, rule.Indexes{Size: regs.MemRuleCount}, regs.MemUrlCount, nil)
		if err != nil {
			return nil, fmt.Errorf("compile %d rules: %w", n, err)
		}
		m.compile, m.image = append(m.compile, (processTime()-start).Seconds()), im
	}
	var err error
	if m.memory, err = ssram.New(ssram.Geometry{}); err != nil {
		return nil, err
	}
	copy(m.memory.Url[0], m.image.Nodes)
	copy(m.memory.Rule[0], m.image.Rules)
	if err := m.fill(routes); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *matching) close() { _ = m.memory.Close() }

// routesOf makes rules as a shop with many names has them: of every host a few parts by prefix, some pages, one part that
// a cookie opens, one that only some methods reach, and the rest.
func routesOf(n int) []rule.Route {
	routes := make([]rule.Route, n)
	for i := range routes {
		host, k := i%hostsFor(n), i/hostsFor(n)
		r := rule.Route{Group: uint32(i % 64), Match: rule.Match{Host: fmt.Sprintf("shop-%d.customers.example", host)}}
		switch k % 10 {
		case 0, 1, 2, 3, 4:
			r.Path = rule.Path{Kind: rule.PrefixPath, Text: fmt.Sprintf("/section-%d/items", k)}
		case 5, 6:
			r.Path = rule.Path{Kind: rule.ExactPath, Text: fmt.Sprintf("/pages/article-%d.html", k)}
		case 7:
			r.Path = rule.Path{Kind: rule.PrefixPath, Text: "/account"}
			r.Conditions = []rule.Condition{{Subject: rule.Cookie, Name: "theme", Value: "dark"}}
		case 8:
			r.Path, r.Methods = rule.Path{Kind: rule.PrefixPath, Text: "/account"}, []string{"POST", "PUT"}
		}
		routes[i] = r
	}
	return routes
}

// fill makes heads for random rules, as browsers send them, and sees that the matcher takes each to its rule.
func (m *matching) fill(routes []rule.Route) error {
	random := rand.New(rand.NewPCG(5, uint64(len(routes))))
	index := make(map[int]uint32, len(routes))
	at := map[string]int{}
	for i := range routes {
		at[routes[i].String()] = i
	}
	for _, l := range m.image.List {
		index[at[l.String()]] = l.Index
	}
	for range headsOf {
		i := random.IntN(len(routes))
		path := routes[i].Path.Text
		switch routes[i].Path.Kind {
		case rule.PrefixPath:
			path += fmt.Sprintf("/%d/view", random.IntN(1000))
		case rule.AnyPath:
			path = "/search/results"
		}
		cookie := "session=8f14e45fceea167a5a36dedd4bea2543; theme=light"
		if len(routes[i].Conditions) > 0 {
			cookie = "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark"
		}
		method := "GET"
		if len(routes[i].Methods) > 0 {
			method = routes[i].Methods[0]
		}
		begin := len(m.text)
		m.text = fmt.Appendf(m.text, "%s %s?size=large&v=17 HTTP/1.1\r\nHost: %s\r\n"+
			"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"+
			"Accept: image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5\r\nAccept-Language: en-US,en;q=0.5\r\n"+
			"Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nReferer: http://www.example/gallery/2026/\r\n"+
			"Cookie: %s\r\nCache-Control: max-age=0\r\n\r\n", method, path, routes[i].Host, cookie)
		m.heads = append(m.heads, head{begin, len(m.text), index[i]})
	}
	_, err := m.round(len(m.heads))
	return err
}

// round reads and matches heads and returns the time of a byte on this thread in ns.
func (m *matching) round(heads int) (float64, error) {
	t := urltable.Tables{Nodes: m.memory.Url[0], Rules: m.memory.Rule[0]}
	n, bytes := 0, 0
	start := threadTime()
	for n < heads {
		for i := range m.heads[:min(heads-n, len(m.heads))] {
			h := &m.heads[i]
			text := m.text[h.begin:h.end]
			end, _ := urltable.FindEnd(text, 0)
			if v := urltable.ParseHead(text[:end], &m.request); v != urltable.OK {
				return 0, fmt.Errorf("head %q: %v", text, v)
			}
			if got, v := urltable.Match(&t, m.image.Roots[0], &m.request); v != urltable.Matched || got != h.rule {
				return 0, fmt.Errorf("head %q: rule %d, outcome %d; want rule %d", text, got, v, h.rule)
			}
			bytes += len(text)
		}
		n += len(m.heads)
	}
	return float64((threadTime() - start).Nanoseconds()) / float64(bytes), nil
}
