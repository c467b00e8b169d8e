package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"splicenic/runtime/config"
)

// Config joins a Server to its surroundings. The zero value works.
type Config struct {
	Now func() time.Time // dates serial numbers; nil: time.Now
	Log *slog.Logger     // nil: nothing is said
	Key [2]uint64        // random; keeps strangers from aiming at others' rate limits
}

// retry is when what failed is tried again: listening, and writing the file.
const retry = time.Second

// A Server publishes a zone. Make one with New.
type Server struct {
	now    func() time.Time
	log    *slog.Logger
	start  time.Time
	wake   chan struct{}
	zone   atomic.Pointer[Zone] // nil: not known yet, or there is none
	counts counters
	limit  limiter

	mu      sync.Mutex
	cfg     *config.Config  // nil: nothing is published
	works   map[string]bool // by service; nil: not known yet
	heard   []Heard         // by peer
	trouble [len(troubles)]string

	// Of the goroutine of Run.
	serial      uint32
	serialKnown bool
	written     string // the text in the file
}

// What can be wrong with a server for a while.
const (
	troubleListen = iota
	troubleFile
)

var troubles = [...]string{troubleListen: "not listening", troubleFile: "zone file not written"}

// New returns a server that publishes nothing yet.
func New(cfg Config) *Server {
	s := &Server{now: cfg.Now, log: cfg.Log, wake: make(chan struct{}, 1)}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.start = s.now()
	s.limit.key, s.limit.counts = cfg.Key, &s.counts
	return s
}

// Publish replaces what the zone is made of. quorum is asked here, for each service that a record names, and not kept; nil:
// nobody knows yet, and every question is answered with SERVFAIL. A configuration without DNS publishes nothing. It may be
// called from any goroutine, and does not wait for Run.
func (s *Server) Publish(c *config.Config, quorum func(service string) bool) {
	if c != nil && c.DNS == nil {
		c = nil
	}
	var works map[string]bool
	if c != nil && quorum != nil {
		works = make(map[string]bool, len(c.DNS.Records))
		for _, r := range c.DNS.Records {
			if _, asked := works[r.Service]; !asked {
				works[r.Service] = quorum(r.Service)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil || s.cfg == nil || !slices.EqualFunc(c.DNS.Peers, s.cfg.DNS.Peers, samePeer) {
		s.heard = nil
	}
	s.cfg, s.works = c, works
	s.again()
}

func samePeer(a, b config.DNSPeer) bool {
	return a.Address == b.Address && slices.Equal(a.VIPs, b.VIPs)
}

// again has Run look at everything.
func (s *Server) again() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends. What fails is logged, counted and tried again; it ends nothing.
func (s *Server) Run(ctx context.Context) {
	var listening, polling task
	defer listening.stop()
	defer polling.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		c := s.cfg
		s.mu.Unlock()
		s.rebuild()
		if c == nil {
			listening.stop()
			polling.stop()
		} else {
			listening.keep(ctx, c.DNS.Listen.String(), func(ctx context.Context) { s.listen(ctx, c.DNS.Listen) })
			polling.keep(ctx, pollKey(c.DNS), func(ctx context.Context) { s.poll(ctx, c.DNS) })
		}
		if !s.write(c) {
			timer.Reset(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// rebuild makes the zone of what is known, where that is another one than before.
func (s *Server) rebuild() {
	s.mu.Lock()
	c, works, heard := s.cfg, s.works, slices.Clone(s.heard)
	s.mu.Unlock()
	if c == nil || works == nil {
		s.zone.Store(nil)
		return
	}
	z := Make(c, 0, func(service string) bool { return works[service] }, heard)
	if z.Same(s.zone.Load()) {
		return
	}
	if !s.serialKnown && c.DNS.File != "" {
		serial, ok, err := readSerial(c.DNS.File)
		if err != nil {
			s.log.Warn("the zone file of before is not readable: the serial number goes on from the clock", "error", err)
		}
		s.serial, s.serialKnown = serial, ok
	}
	s.serial, s.serialKnown = nextSerial(s.serial, s.serialKnown, s.now()), true
	s.zone.Store(z.At(s.serial))
	s.counts.zones.Add(1)
	s.log.Info("zone published", "zone", z.origin, "serial", z.Serial, "out", len(z.out()))
}

// out names what is promised and served by nobody.
func (z *Zone) out() (list []string) {
	for _, r := range z.shown() {
		if r.Out {
			list = append(list, r.Name+" "+r.Type)
		}
	}
	return list
}

// write brings the file to the zone; false where it has to be tried again. A zone that is not known leaves the file alone.
func (s *Server) write(c *config.Config) bool {
	z := s.zone.Load()
	if c == nil || c.DNS.File == "" || z == nil {
		return true
	}
	text := z.String()
	if key := c.DNS.File + "\n" + text; key != s.written {
		err := writeFile(c.DNS.File, text)
		s.say(troubleFile, err)
		if err != nil {
			s.counts.fileErrors.Add(1)
			return false
		}
		s.written = key
	}
	return true
}

// say notes whether something is wrong, and logs it when that changes. nil: nothing is.
func (s *Server) say(what int, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	was := s.trouble[what]
	s.trouble[what] = text
	s.mu.Unlock()
	switch {
	case text == was:
	case text != "":
		s.log.Error("dns: "+troubles[what]+"; tried again every second", "error", err)
	default:
		s.log.Info("dns: no longer " + troubles[what])
	}
}

// A task is a goroutine that runs as long as what it was started for stays the same.
type task struct {
	key    string
	cancel context.CancelFunc // nil: nothing runs
	done   chan struct{}
}

// keep has f run for a key; one that runs for another key is ended first.
func (t *task) keep(ctx context.Context, key string, f func(ctx context.Context)) {
	if t.cancel != nil && t.key == key {
		return
	}
	t.stop()
	ctx, cancel := context.WithCancel(ctx)
	t.key, t.cancel, t.done = key, cancel, make(chan struct{})
	done := t.done
	go func() {
		defer close(done)
		f(ctx)
	}()
}

// stop ends what runs and waits for it.
func (t *task) stop() {
	if t.cancel != nil {
		t.cancel()
		<-t.done
		t.cancel = nil
	}
}

// permitted says whether a client may have the whole zone.
func (s *Server) permitted(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg != nil && slices.ContainsFunc(s.cfg.DNS.Transfer, func(p netip.Prefix) bool { return p.Contains(from) })
}

// isPeer says whether an address is that of a peer.
func (s *Server) isPeer(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg != nil && slices.ContainsFunc(s.cfg.DNS.Peers, func(p config.DNSPeer) bool { return p.Address.Addr() == from })
}

// Shown is what a server publishes, for people.
type Shown struct {
	Zone     string            `json:"zone"`   // with its dot
	Known    bool              `json:"known"`  // false: every question is answered with SERVFAIL
	Serial   uint32            `json:"serial"` // zero: not known
	TTL      int64             `json:"ttl_seconds"`
	Listen   string            `json:"listen"` // empty: nowhere
	File     string            `json:"file"`   // empty: none
	Troubles []string          `json:"troubles"`
	Records  []ShownRecord     `json:"records"`
	Peers    []ShownPeer       `json:"peers"`
	Counters map[string]uint64 `json:"counters"`
	Text     string            `json:"text"` // the zone file
}

// ShownRecord is a name and its addresses of one family.
type ShownRecord struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Addresses []string `json:"addresses"`
	Out       bool     `json:"out"` // promised, but nobody serves it: SERVFAIL
}

// ShownPeer is what is known of a peer.
type ShownPeer struct {
	Address string   `json:"address"`
	Alive   bool     `json:"alive"`
	Live    []string `json:"live"` // "NAME ADDRESS"
}

// Show tells what is published; nil where nothing is.
func (s *Server) Show() *Shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg == nil {
		return nil
	}
	cfg := s.cfg.DNS
	v := &Shown{
		Zone: cfg.Zone + ".", TTL: int64(cfg.TTL / time.Second), File: cfg.File,
		Troubles: []string{}, Records: []ShownRecord{}, Peers: []ShownPeer{}, Counters: s.Counters(),
	}
	if cfg.Listen.IsValid() {
		v.Listen = cfg.Listen.String()
	}
	for i, t := range s.trouble {
		if t != "" {
			v.Troubles = append(v.Troubles, fmt.Sprintf("%s: %s", troubles[i], t))
		}
	}
	for i, p := range cfg.Peers {
		sp := ShownPeer{Address: p.Address.String(), Live: []string{}}
		if i < len(s.heard) {
			sp.Alive = s.heard[i].Alive
			for _, name := range recordNames(cfg) {
				for _, a := range s.heard[i].Live[name] {
					sp.Live = append(sp.Live, name+" "+a.String())
				}
			}
		}
		v.Peers = append(v.Peers, sp)
	}
	if z := s.zone.Load(); z != nil {
		v.Known, v.Serial, v.Text, v.Records = true, z.Serial, z.String(), z.shown()
	}
	return v
}

// shown are the names of the zone with their addresses.
func (z *Zone) shown() []ShownRecord {
	list := []ShownRecord{}
	for _, n := range z.order {
		if n.own {
			continue
		}
		for _, s := range n.sets {
			if t, ok := addressTypes[s.kind]; ok {
				r := ShownRecord{Name: n.name, Type: t, Addresses: []string{}, Out: s.out}
				for _, rr := range s.records {
					if a, ok := address(rr); ok {
						r.Addresses = append(r.Addresses, a.String())
					}
				}
				list = append(list, r)
			}
		}
	}
	return list
}

// counters are what became of questions, and of the zone.
type counters struct {
	udp, tcp, answered, failed, nameError, refused, bad atomic.Uint64 // questions, and what was answered
	truncated, slipped, limited, ignored, unsent        atomic.Uint64
	crowded, cut, transfers                             atomic.Uint64 // connections
	rounds, silent                                      atomic.Uint64 // of peers
	zones, fileErrors                                   atomic.Uint64
}

// Counters are what became of questions, by name.
func (s *Server) Counters() map[string]uint64 {
	c := &s.counts
	m := map[string]uint64{}
	for _, x := range []struct {
		name string
		n    *atomic.Uint64
	}{
		{"udp", &c.udp}, {"tcp", &c.tcp}, {"noerror", &c.answered}, {"servfail", &c.failed}, {"nxdomain", &c.nameError}, {"refused", &c.refused}, {"other", &c.bad},
		{"truncated", &c.truncated}, {"limited_slipped", &c.slipped}, {"limited_dropped", &c.limited}, {"ignored", &c.ignored}, {"unsent", &c.unsent},
		{"connections_crowded", &c.crowded}, {"connections_cut", &c.cut}, {"transfers", &c.transfers},
		{"peer_rounds", &c.rounds}, {"peer_silent", &c.silent}, {"zones", &c.zones}, {"file_errors", &c.fileErrors},
	} {
		m[x.name] = x.n.Load()
	}
	return m
}
