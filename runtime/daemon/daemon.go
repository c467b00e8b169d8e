package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception"
	"splicenic/runtime/health"
	"splicenic/runtime/schedule"
)

// Config joins a Daemon to its card.
type Config struct {
	Card *driver.Card // needed; the caller closes it after the Daemon's last call
	// Clock is the time since some start and does not go back. Run needs it; nil: the time since New.
	Clock func() time.Duration
	// Wall dates what is shown to people. nil: time.Now.
	Wall func() time.Time
	// Log is told about what an operator should know. nil: nothing is said.
	Log *slog.Logger
	// Random gives the key of the numbers that probes of servers begin with. nil: crypto/rand.
	Random io.Reader
	// State is the file that keeps the names behind the tables' indexes for a successor. Empty: none is kept, and a
	// predecessor's tables have to speak for themselves.
	State string
}

// batch is how many descriptors are taken from a ring at once, and batches how many times in one step.
const (
	batch   = 64
	batches = 16
)

// Daemon drives a card. Make one with New.
type Daemon struct {
	card      *driver.Card
	clock     func() time.Duration
	wall      func() time.Time
	log       *slog.Logger
	stateFile string
	wake      chan struct{} // an interrupt, or something to do at once
	accepting chan struct{} // closed when the card takes connections

	mu       sync.Mutex
	now      time.Duration
	cfg      *config.Config // in force; nil before the first Apply
	im       *Image         // in the card
	left     *predecessor   // what the first Apply takes over; nil: nothing
	saved    []byte         // the state file
	w        *writer
	opening  bool          // the tables are written but not in force yet
	openBy   time.Duration // when they come into force at last; zero: the next step begins to count
	h        *exception.Handler
	seen     uint64                      // version of the neighbours that the tables show
	paths    uint64                      // version of the paths' MTUs that they show
	known    uint64                      // version of the profiles that they show
	odd      map[netip.AddrPort]uint32   // what servers with a profile in the configuration said against it, last
	loads    []Load                      // of servers, by index, as they were read last
	plans    map[string]*schedule.Memory // what schedulers remember, by pool
	portsLow map[uint32]bool             // servers that were warned of, by index
	draining map[string]drain            // by the name of the server's entry
	dead     map[member]bool             // as the tables show
	up       map[member]time.Time        // since when servers that were dead are not, where their weights still grow
	followed time.Duration               // when slots that follow from counters were computed last
	release  time.Duration               // when retired entries are looked at again
	stale    bool                        // the tables do not show what they should; tried again with the next release
	status   Status
	events   recent
	checks   checks
	logging  logging

	publishing publishing
	exam       *exam    // nil: none is going on
	examKey    [32]byte // of the next
	ended      bool     // Close was called

	exceptions [batch]driver.Exception
	descriptor [batch]regs.EventEntry
}

// New returns a daemon of a card. One that was brought up by a reset takes no connections before the first Apply. One that
// was adopted goes on as it did: New reads its tables back, and the first Apply changes what differs.
func New(cfg Config) (*Daemon, error) {
	if cfg.Card == nil {
		return nil, errors.New("start daemon: no card")
	}
	if err := cfg.Card.Mismatch(); err != nil {
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	d := &Daemon{
		card: cfg.Card, clock: cfg.Clock, wall: cfg.Wall, log: cfg.Log, stateFile: cfg.State,
		wake: make(chan struct{}, 1), accepting: make(chan struct{}), up: map[member]time.Time{}, draining: map[string]drain{}, portsLow: map[uint32]bool{}, w: newWriter(cfg.Card),
	}
	if d.wall == nil {
		d.wall = time.Now
	}
	if d.clock == nil {
		start := time.Now()
		d.clock = func() time.Duration { return time.Since(start) }
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	var key [32]byte
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if _, err := io.ReadFull(cfg.Random, key[:]); err != nil {
		return nil, fmt.Errorf("start daemon: make key: %w", err)
	}
	d.checks.checker = health.NewChecker(key)
	d.h = exception.New(exception.Config{Emit: d.emit, Reset: d.reset, Connect: d.connect, Take: d.take, Feed: d.feed, Reply: d.reply, Tell: d.refused, Others: d.others, Find: d.find, Connection: d.connection, Reinject: d.reinject, ReinjectBack: d.reinjectBack, ReinjectDone: d.reinjectDone, Pass: d.pass, Adjust: d.adjust, Free: d.free, Check: d.deliver, Examine: d.examined, Key: key})
	d.examKey = sha256.Sum256(append([]byte("examination"), key[:]...))
	d.logging = newLogging(d)
	d.publishing = newPublishing(d, key)
	d.status.Started = d.wall()
	if d.status.Attached = attached(d.card); d.status.Attached != Reset {
		if err := d.adopt(context.Background()); err != nil {
			return nil, fmt.Errorf("start daemon: adopt card: %w", err)
		}
	}
	return d, nil
}

// emit queues a frame to be sent.
func (d *Daemon) emit(port int, frame []byte) error { return d.inject(d.card.Emit, port, frame) }

// reinject queues a frame for a parser.
func (d *Daemon) reinject(port int, frame []byte) error {
	return d.inject(d.card.Reinject, port, frame)
}

// reinjectDone queues a frame for a parser whose payload was read.
func (d *Daemon) reinjectDone(port int, frame []byte) error {
	return d.inject(d.card.ReinjectDone, port, frame)
}

// reinjectBack queues a frame for a parser that is to come back.
func (d *Daemon) reinjectBack(port int, frame []byte, cookie uint32) error {
	return d.inject(func(port int, frame []byte) error { return d.card.ReinjectBack(port, frame, cookie) }, port, frame)
}

// inject queues a frame; a full inject ring is handed to the card once before it gives up.
func (d *Daemon) inject(verb func(int, []byte) error, port int, frame []byte) error {
	err := verb(port, frame)
	if errors.Is(err, driver.ErrRingFull) {
		d.card.Flush()
		err = verb(port, frame)
	}
	return err
}

func (d *Daemon) reset(handle uint32) error {
	return d.card.ResetConnection(context.Background(), driver.Handle(handle), true, true)
}

// Step does what is due at now: exceptions, events, neighbours, tables. now does not go back. The error says that the
// card is lost; everything else is counted or logged.
func (d *Daemon) Step(now time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step(now)
	return d.card.Err()
}

func (d *Daemon) step(now time.Duration) {
	d.now = max(d.now, now)
	if d.cfg != nil { // before that nobody knows what to do with a frame
		d.drainExceptions()
		d.drainEvents()
		d.h.Advance(d.now)
		checked := d.check()
		d.examine()
		if d.open() || checked || d.h.Neighbours().Version() != d.seen || d.h.PathVersion() != d.paths || d.h.Prober().Version() != d.known {
			d.refresh()
		}
		d.drained(context.Background())
		if err := d.follow(context.Background()); err != nil {
			d.log.Error("slots not written", "error", err)
			d.status.TableErrors++
		}
	}
	if d.now >= d.release {
		d.release = d.now + releaseInterval
		d.tidy()
	}
	d.publish()
	d.card.Flush()
}

func (d *Daemon) drainExceptions() {
	for range batches {
		n := d.card.Exceptions(d.exceptions[:])
		for i := range d.exceptions[:n] {
			e := &d.exceptions[i]
			d.h.Handle(&e.ExceptionEntry, e.Frame, d.now)
			d.status.exceptions[min(e.ReasonReason, maxReason)]++
		}
		if n > 0 {
			d.card.CommitExceptions()
		}
		if n < batch {
			return
		}
	}
	d.again()
}

func (d *Daemon) drainEvents() {
	for range batches {
		n := d.card.Events(d.descriptor[:])
		d.logEvents(d.descriptor[:n])
		for i := range d.descriptor[:n] {
			d.events.add(&d.descriptor[i])
			switch e := &d.descriptor[i]; e.ControlType {
			case regs.EventControlTypeProfile:
				d.learn(e)
			case regs.EventControlTypeClosed:
				d.h.Closed(regs.SetEventHandleGeneration(e.HandleN, e.HandleGeneration))
			}
		}
		if n > 0 {
			d.card.CommitEvents()
		}
		if n < batch {
			return
		}
	}
	d.again()
}

// again has Run call Step once more at once.
func (d *Daemon) again() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run calls Step whenever the card interrupts or a timer is due, until ctx ends or the card is lost. A card that goes
// without a notice is missed by the next look at it, a second later at most.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var waits sync.WaitGroup
	defer waits.Wait()
	defer cancel(nil)
	lines, last := context.WithCancel(context.WithoutCancel(ctx)) // until the last Step
	defer last()
	waits.Go(func() { d.logging.writer.Run(lines) })
	waits.Go(func() { d.publishing.Run(ctx) })
	for _, v := range []int{driver.VectorException, driver.VectorEvent} {
		waits.Go(func() {
			for {
				if err := d.card.Wait(ctx, v); err != nil {
					cancel(err) // the card is gone, or ctx ended anyway
					return
				}
				d.again()
			}
		})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			if err := d.card.Err(); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			return fmt.Errorf("run: %w", context.Cause(ctx))
		case <-d.wake:
		case <-timer.C:
		}
		if err := d.Step(d.clock()); err != nil {
			return fmt.Errorf("run: %w", err)
		}
		timer.Reset(max(d.Next()-d.clock(), time.Millisecond))
	}
}

// Next is when Step has something to do even if the card does not interrupt.
func (d *Daemon) Next() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := min(d.h.Next(), d.release, d.checks.checker.Next())
	if d.opening && d.openBy != 0 {
		next = min(next, d.openBy)
	}
	if d.exam != nil {
		next = min(next, d.exam.Next())
	}
	for _, t := range d.draining {
		next = min(next, t.by)
	}
	if d.im != nil && d.im.refreshes() {
		next = min(next, d.followed+refreshEvery)
	}
	return next
}

// Do calls f while nothing else uses the card or the daemon.
func (d *Daemon) Do(f func(*driver.Card) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return f(d.card)
}
