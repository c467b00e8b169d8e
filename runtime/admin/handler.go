package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"splicenic/driver"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/runtime/view"
)

// maxRequest bounds a request's body: a configuration file, escaped.
const maxRequest = 2*config.MaxBytes + 4096

// A Source shows a card.
type Source interface {
	// View calls f while nothing else uses the card.
	View(f func(*view.View) error) error
}

// Bare is the Source of a card that nobody drives.
func Bare(c *driver.Card) Source { return bare{c} }

type bare struct{ card *driver.Card }

func (b bare) View(f func(*view.View) error) error { return f(&view.View{Card: b.card}) }

// server answers requests.
type server struct {
	src     Source
	rt      *daemon.Daemon // nil: none
	boots   Boots          // nil: nobody lets the card boot
	started time.Time
}

// endpoint answers one kind of request with a value to be written as JSON.
type endpoint struct {
	pattern string // of http.ServeMux
	what    string // for errors: what the request wants
	answer  func(s *server, r *http.Request) (any, error)
}

var endpoints = []endpoint{
	{"GET /v1/status", "show status", (*server).status},
	{"GET /v1/config", "show configuration", (*server).configuration},
	{"POST /v1/config/check", "check configuration", (*server).check},
	{"POST /v1/config/diff", "compare configurations", (*server).diff},
	{"POST /v1/config/apply", "apply configuration", (*server).apply},
	{"GET /v1/card", "show card", (*server).card},
	{"POST /v1/card/reset", "reset card", (*server).reset},
	{"GET /v1/ports", "list ports", (*server).ports},
	{"GET /v1/registers", "read registers", (*server).registers},
	{"PUT /v1/registers", "store register", (*server).setRegister},
	{"GET /v1/cam/{side}", "list CAM entries", (*server).cam},
	{"GET /v1/cam/{side}/lookup", "look up CAM entry", (*server).lookup},
	{"GET /v1/pages/{n}", "show page", (*server).page},
	{"GET /v1/rules", "list rules", (*server).rules},
	{"GET /v1/connections", "list connections", (*server).connections},
	{"GET /v1/connections/{id}", "show connection", (*server).connection},
	{"GET /v1/explain", "explain connection", (*server).explain},
	{"GET /v1/services", "list services", (*server).services},
	{"GET /v1/groups", "list groups", (*server).groups},
	{"GET /v1/servers", "list servers", (*server).servers},
	{"GET /v1/neighbours", "list neighbours", (*server).neighbours},
	{"POST /v1/doctor", "examine what is around the card", (*server).doctor},
	{"GET /v1/dns", "show zone", (*server).dns},
	{"GET /v1/stats", "read statistics", (*server).stats},
	{"GET /v1/events", "list events", (*server).events},
	{"GET /v1/flash", "show flash", (*server).flash},
	{"GET /v1/flash/data", "read flash", (*server).readFlash},
	{"PUT /v1/flash/data", "program flash", (*server).programFlash},
	{"POST /v1/flash/erase", "erase sector of flash", (*server).eraseFlash},
	{"PUT /v1/flash/protect", "set write protection of flash", (*server).protectFlash},
	{"PUT /v1/flash/next", "set next boot slot", (*server).setNext},
	{"GET /v1/boot", "show boot", (*server).bootState},
	{"POST /v1/boot", "boot card", (*server).boot},
	{"POST /v1/boot/plan", "plan boot", (*server).bootPlan},
}

// Handler answers requests about the card of src. rt is the runtime that drives it, nil where none does.
func Handler(src Source, rt *daemon.Daemon) http.Handler { return handler(src, rt, nil) }

func handler(src Source, rt *daemon.Daemon, boots Boots) http.Handler {
	s := &server{src: src, rt: rt, boots: boots, started: time.Now()}
	mux := http.NewServeMux()
	for _, e := range endpoints {
		mux.HandleFunc(e.pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
			v, err := e.answer(s, r)
			if err != nil {
				status, f := explain(e.what, r.URL.Path, err)
				write(w, status, f)
				return
			}
			if p, ok := v.(octets); ok {
				w.Header().Set("Content-Type", "application/octet-stream")
				w.Write(p)
				return
			}
			write(w, http.StatusOK, v)
		})
	}
	return jsonErrors(mux)
}

// jsonErrors answers what mux has no endpoint for.
func jsonErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would lead a path that is not clean elsewhere, with a page that is no JSON.
		clean := path.Clean(r.URL.EscapedPath()) == r.URL.EscapedPath()
		if _, pattern := mux.Handler(r); pattern != "" && clean {
			mux.ServeHTTP(w, r)
			return
		}
		// Ask the mux which error it is, without its text.
		probe := &statusOnly{header: http.Header{}}
		mux.ServeHTTP(probe, r)
		if probe.status < http.StatusBadRequest {
			probe.status = http.StatusNotFound
		}
		if v := probe.header.Get("Allow"); v != "" {
			w.Header().Set("Allow", v)
		}
		write(w, probe.status, failure{Error: Error{What: r.Method + " " + r.URL.Path, Where: r.URL.Path, Why: http.StatusText(probe.status), Do: "use a path and method of /v1", Exit: 2}})
	})
}

type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

func write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"what":"write answer","where":"","why":"not representable","do":"report it","exit":1}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}

// viewing calls f with the card.
func viewing[T any](s *server, f func(v *view.View) (T, error)) (any, error) {
	var result T
	err := s.src.View(func(v *view.View) (err error) {
		result, err = f(v)
		return err
	})
	return result, err
}

// body decodes the request's JSON.
func body(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = fmt.Errorf("something follows the JSON document: %w", cmp.Or(more, errors.New("more of it")))
		}
	}
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return fmt.Errorf("%w: it may have %d bytes", errTooLarge, large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: %v", errSlow, bodyTimeout)
	}
	return fmt.Errorf("%w: %v", errUsage, err)
}

// whole is body for requests of which no part may be left out: what is not said must not be taken for 0, which is a sector
// and a slot.
func whole(r *http.Request, v any, names ...string) error {
	var text json.RawMessage
	if err := body(r, &text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var said map[string]json.RawMessage
	if err := cmp.Or(json.Unmarshal(text, &said), d.Decode(v)); err != nil {
		return fmt.Errorf("%w: %v", errUsage, err)
	}
	for _, name := range names {
		if x, ok := said[name]; !ok || string(x) == "null" {
			return fmt.Errorf("%w: %q is missing", errUsage, name)
		}
	}
	return nil
}

// number reads a number from the query; absent is zero.
func number(r *http.Request, key string, most uint64) (uint64, error) {
	s := r.URL.Query().Get(key)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%w: %s is %q, a number up to %d is wanted", errUsage, key, s, most)
	}
	return n, nil
}

// Status is how the runtime fares.
type Status struct {
	Name          string         `json:"name"`
	Body          string         `json:"body"`
	Version       string         `json:"version"`
	PID           int            `json:"pid"`
	Started       time.Time      `json:"started"`
	UptimeSeconds int64          `json:"uptime_seconds"`
	Generation    uint32         `json:"generation"`
	Config        *StatusConfig  `json:"config"`
	LastReload    *daemon.Reload `json:"last_reload"`
	TableErrors   uint64         `json:"table_errors"`
	StateErrors   uint64         `json:"state_errors"`
	Attached      string         `json:"attached"`   // reset, adopted or continued
	Accepting     bool           `json:"accepting"`  // the card takes connections
	Unresolved    int            `json:"unresolved"` // next hops, when it began to
	Exceptions    Exceptions     `json:"exceptions"`
	Servers       []Server       `json:"servers"`
	Warnings      []string       `json:"warnings"`
}

// Server is what is known of the TCP options a server keeps.
type Server struct {
	Address    string `json:"address"`
	Profile    string `json:"profile"`     // configured, known, unknown, asked, refused or silent; a profile known before stays
	AgeSeconds int64  `json:"age_seconds"` // since it was learned or confirmed
	MSS        uint16 `json:"mss"`         // zero: not known
	WScale     *uint8 `json:"wscale"`      // null: no window scale
	SACK       bool   `json:"sack"`
	Timestamps bool   `json:"timestamps"`
	ECN        bool   `json:"ecn"`
}

func servers(list []daemon.Server) []Server {
	all := make([]Server, len(list))
	for i := range list {
		p := &list[i].Profile
		all[i] = Server{
			Address: list[i].Address.String(), Profile: list[i].From, AgeSeconds: int64(list[i].Age.Seconds()),
			MSS: p.MSS, SACK: p.SACK, Timestamps: p.Timestamps, ECN: p.ECN,
		}
		if p.WScaleOn {
			all[i].WScale = &p.WScale
		}
	}
	return all
}

// Exceptions is what became of the frames for the host.
type Exceptions struct {
	Lost uint64 `json:"lost"` // gaps in their sequence numbers
}

// StatusConfig sums the configuration in force up.
type StatusConfig struct {
	File     string    `json:"file"`
	Applied  time.Time `json:"applied"`
	Services int       `json:"services"`
	Groups   int       `json:"groups"`
	Servers  int       `json:"servers"`
}

func (s *server) status(*http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	d := s.rt.Status()
	st := Status{
		Version: version(), PID: os.Getpid(), Started: d.Started, UptimeSeconds: int64(time.Since(s.started).Seconds()), LastReload: d.LastReload,
		TableErrors: d.TableErrors, StateErrors: d.StateErrors, Attached: d.Attached, Accepting: d.Accepting, Unresolved: d.Unresolved,
		Exceptions: Exceptions{Lost: d.LostExceptions}, Servers: servers(s.rt.Servers()), Warnings: []string{},
	}
	err := s.src.View(func(v *view.View) error {
		info := v.Card.Device().Info()
		st.Name, st.Body = info.Name, info.Body
		_, st.Generation = v.Card.Bank()
		return v.Card.Err()
	})
	if c := s.rt.Configuration(); c != nil {
		st.Config = &StatusConfig{File: c.File, Applied: d.Applied, Services: len(c.Services), Groups: len(c.Groups)}
		for _, g := range c.Groups {
			st.Config.Servers += len(g.Servers)
		}
		st.Warnings = warnings(c)
	}
	return st, err
}

// version is the version of the module, or of its commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

func warnings(c *config.Config) []string {
	list := []string{}
	for _, w := range c.Warnings {
		list = append(list, w.String())
	}
	return list
}

// File is a configuration file as requests carry it.
type File struct {
	File string `json:"file"` // its name, for messages
	Text string `json:"text"`
}

func (s *server) configuration(*http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	c := s.rt.Configuration()
	if c == nil {
		return nil, fmt.Errorf("configuration: %w", view.ErrNotFound)
	}
	return File{c.File, c.Text}, nil
}

func load(r *http.Request) (*config.Config, error) {
	var f File
	if err := body(r, &f); err != nil {
		return nil, err
	}
	return config.Load(f.File, []byte(f.Text))
}

// Checked is what a check of a right configuration says.
type Checked struct {
	Warnings []string `json:"warnings"`
}

func (s *server) check(r *http.Request) (any, error) {
	c, err := load(r)
	if err != nil {
		return nil, err
	}
	return Checked{warnings(c)}, nil
}

// Compared is what a configuration would change.
type Compared struct {
	Changes  []config.Change `json:"changes"`
	Warnings []string        `json:"warnings"`

	// With a runtime: what the routes take of the card, or why the card refuses them.
	Capacity *daemon.Capacity `json:"capacity,omitempty"`
	Refused  string           `json:"refused,omitempty"`
}

func (s *server) diff(r *http.Request) (any, error) {
	c, err := load(r)
	if err != nil {
		return nil, err
	}
	if s.rt == nil {
		return Compared{Changes: config.Diff(nil, c), Warnings: warnings(c)}, nil
	}
	d := Compared{Changes: config.Diff(s.rt.Configuration(), c), Warnings: warnings(c)}
	if room, err := s.rt.Capacity(c); err != nil {
		d.Refused = err.Error()
	} else {
		d.Capacity = &room
	}
	return d, nil
}

func (s *server) apply(r *http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	var f File
	if err := body(r, &f); err != nil {
		return nil, err
	}
	return s.rt.Load(r.Context(), f.File, []byte(f.Text))
}

func (s *server) card(*http.Request) (any, error) {
	return viewing(s, func(v *view.View) (view.Card, error) { return v.Describe(), v.Card.Err() })
}

func (s *server) reset(r *http.Request) (any, error) {
	if s.rt != nil {
		return struct{}{}, s.rt.Reset(r.Context())
	}
	return viewing(s, func(v *view.View) (struct{}, error) { return struct{}{}, v.Card.Reset(r.Context()) })
}

func (s *server) ports(*http.Request) (any, error) {
	return viewing(s, func(v *view.View) ([]view.Port, error) { return v.Ports(), v.Card.Err() })
}

func (s *server) registers(r *http.Request) (any, error) {
	names := r.URL.Query()["name"]
	return viewing(s, func(v *view.View) ([]view.Register, error) {
		list, err := v.Registers(names)
		if err != nil {
			return nil, err
		}
		return list, v.Card.Err()
	})
}

// Store is a value for a register.
type Store struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"` // a number, or text
}

func (s *server) setRegister(r *http.Request) (any, error) {
	var st Store
	if err := body(r, &st); err != nil {
		return nil, err
	}
	value := string(st.Value)
	if len(value) > 0 && value[0] == '"' {
		if err := json.Unmarshal(st.Value, &value); err != nil {
			return nil, fmt.Errorf("%w: %v", errUsage, err)
		}
	}
	return viewing(s, func(v *view.View) (view.Register, error) {
		v.Driven = s.rt != nil
		return v.SetRegister(st.Name, value)
	})
}

// defaultLimit is how many CAM entries are listed unless more are asked for.
const defaultLimit = 1000

func (s *server) cam(r *http.Request) (any, error) {
	side, err := view.Side(r.PathValue("side"))
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", 1<<31-1)
	if err != nil {
		return nil, err
	}
	if r.URL.Query().Get("limit") == "" {
		limit = defaultLimit
	}
	return viewing(s, func(v *view.View) ([]view.CAMEntry, error) { return v.CAM(r.Context(), side, int(limit)) })
}

func (s *server) lookup(r *http.Request) (any, error) {
	side, err := view.Side(r.PathValue("side"))
	if err != nil {
		return nil, err
	}
	q, err := query(r)
	if err != nil {
		return nil, err
	}
	return viewing(s, func(v *view.View) (view.CAMEntry, error) { return v.CAMLookup(r.Context(), side, q) })
}

// query reads a CAM key from the query.
func query(r *http.Request) (q view.CAMQuery, err error) {
	if q.Key.Addr, err = netip.ParseAddr(r.URL.Query().Get("address")); err != nil {
		return q, fmt.Errorf("%w: address %v", errUsage, err)
	}
	q.Key.Protocol = 6
	for _, f := range []struct {
		key  string
		most uint64
		set  func(uint64)
	}{
		{"port", 65535, func(n uint64) { q.Key.Port = uint16(n) }},
		{"destination", 65535, func(n uint64) { q.Key.Destination = uint16(n) }},
		{"index", 65535, func(n uint64) { q.Key.Index = uint16(n) }},
		{"vlan", 4095, func(n uint64) { q.Key.VLAN = uint16(n) }},
		{"protocol", 255, func(n uint64) { q.Key.Protocol = uint8(n) }},
	} {
		n, err := number(r, f.key, f.most)
		if err != nil {
			return q, err
		}
		if r.URL.Query().Get(f.key) != "" {
			f.set(n)
		}
	}
	if s := r.URL.Query().Get("vip"); s != "" {
		if q.VIP, err = netip.ParseAddr(s); err != nil {
			return q, fmt.Errorf("%w: vip %v", errUsage, err)
		}
	}
	if s := r.URL.Query().Get("server"); s != "" {
		if q.Server, err = netip.ParseAddrPort(s); err != nil {
			return q, fmt.Errorf("%w: server %v", errUsage, err)
		}
	}
	return q, nil
}

func (s *server) page(r *http.Request) (any, error) {
	n, err := strconv.ParseUint(r.PathValue("n"), 0, 32)
	if err != nil {
		return nil, fmt.Errorf("%w: page %q is no number", errUsage, r.PathValue("n"))
	}
	head := r.URL.Query().Get("head") == "1"
	return viewing(s, func(v *view.View) (view.Page, error) { return v.Page(r.Context(), uint32(n), head) })
}

func (s *server) rules(r *http.Request) (any, error) {
	return viewing(s, func(v *view.View) ([]view.Rule, error) { return v.Rules(r.Context()) })
}

func (s *server) connections(r *http.Request) (any, error) {
	limit, err := number(r, "limit", 1<<31-1)
	if err != nil {
		return nil, err
	}
	f := view.Filter{Service: r.URL.Query().Get("service"), State: r.URL.Query().Get("state"), Limit: int(limit)}
	if err := known("state", f.State, view.States()); err != nil {
		return nil, err
	}
	return viewing(s, func(v *view.View) ([]view.Connection, error) {
		if _, err := strconv.ParseUint(f.Service, 10, 16); err != nil { // no index
			if err := known("service", f.Service, v.Services()); err != nil {
				return nil, err
			}
		}
		return v.Connections(r.Context(), f)
	})
}

// maxChoices is how many words an error lists.
const maxChoices = 20

// known refuses a word that is none of the choices; no word is one.
func known(what, word string, choices []string) error {
	if word == "" || slices.Contains(choices, word) {
		return nil
	}
	near := config.Near(word, choices)
	if near != "" {
		near = fmt.Sprintf("; did you mean %q?", near)
	}
	if len(word) > 64 {
		word = word[:61] + "..."
	}
	there := "there are " + strings.Join(choices[:min(len(choices), maxChoices)], ", ")
	switch {
	case len(choices) == 0:
		there = "there are indexes only"
	case len(choices) > maxChoices:
		there += fmt.Sprintf(" and %d more", len(choices)-maxChoices)
	}
	return fmt.Errorf("there is no %s %q, %s%s: %w", what, word, there, near, view.ErrUsage)
}

func (s *server) connection(r *http.Request) (any, error) {
	return viewing(s, func(v *view.View) (view.Connection, error) { return v.Connection(r.Context(), r.PathValue("id")) })
}

func (s *server) explain(r *http.Request) (any, error) {
	return viewing(s, func(v *view.View) (view.Explanation, error) {
		return v.Explain(r.Context(), r.URL.Query().Get("connection"))
	})
}

func (s *server) groups(r *http.Request) (any, error) {
	return viewing(s, func(v *view.View) ([]view.Group, error) { return v.Groups(r.Context()) })
}

func (s *server) servers(r *http.Request) (any, error) {
	return viewing(s, func(v *view.View) ([]view.Server, error) { return v.Servers(r.Context()) })
}

// Neighbour is a neighbour in words.
type Neighbour struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
	VLAN    uint16 `json:"vlan"`
	MAC     string `json:"mac"`
	State   string `json:"state"`
	Wanted  bool   `json:"wanted"`
	AgeMS   int64  `json:"age_ms"`
}

func (s *server) neighbours(*http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	list := []Neighbour{}
	for _, n := range s.rt.Neighbours() {
		m := n.MAC
		list = append(list, Neighbour{
			Address: n.Addr.String(), Port: n.Port, VLAN: n.VLAN, State: n.State.String(), Wanted: n.Wanted, AgeMS: n.Age.Milliseconds(),
			MAC: fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]),
		})
	}
	return list, nil
}

func (s *server) stats(r *http.Request) (any, error) {
	v, err := viewing(s, func(v *view.View) (view.Stats, error) { return v.Stats(r.Context()) })
	if err == nil && s.rt != nil {
		v.(view.Stats).Set("runtime", s.rt.Counters())
	}
	return v, err
}

func (s *server) events(r *http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	limit, err := number(r, "limit", 1<<31-1)
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = defaultLimit
	}
	entries := s.rt.Events(int(limit))
	return viewing(s, func(v *view.View) ([]view.Event, error) { return v.Events(r.Context(), entries) })
}
