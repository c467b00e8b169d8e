package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/discover"
	"splicenic/driver/vfio"
	"splicenic/regs"
	"splicenic/runtime/admin"
	"splicenic/tools/open"
)

// Finding is one line of what the doctor found.
type Finding struct {
	Name   string `json:"name"`
	Where  string `json:"where,omitempty"` // of what is around a card
	Status string `json:"status"`          // ok, fail or n/a
	Number string `json:"number"`          // what was found, with its unit
	Why    string `json:"why"`             // of fail and n/a
	Fix    string `json:"fix"`             // the command; empty: nothing to do
}

// check makes a line.
func check(name string, s discover.Status, number, why, fix string) Finding {
	return Finding{Name: name, Status: s.String(), Number: number, Why: why, Fix: fix}
}

// patience is how long an interrupt may take, which takes microseconds.
const patience = time.Second

// Doctor looks at what a card needs of the machine, and has each interrupt vector raised of the card that is named, or else
// of every card that can be opened. Where none is named and a runtime drives one it looks at what is around that, too.
func Doctor(ctx context.Context, cfg Config) ([]Finding, error) {
	checks, err := machineChecks(ctx, cfg)
	if err != nil || named(cfg) {
		return checks, err
	}
	c, err := Runtime(ctx, cfg)
	switch {
	case err != nil:
		f := Explain("ask the runtime", err)
		return append(checks, check("neighbours", discover.Fail, "", f.Why, f.Do)), nil
	case c == nil:
		return append(checks, check("neighbours", discover.NA, "", "no runtime at "+socketPath(cfg), "splicectl run -c FILE")), nil
	}
	defer c.Close()
	var around []Finding
	if _, err := c.Send(ctx, "POST", "doctor", struct{}{}, &around); err != nil {
		f := Explain("examine what is around the card", err)
		return append(checks, check("neighbours", discover.Fail, "", f.Why, f.Do)), nil
	}
	return append(checks, around...), nil
}

// named says whether a card is named.
func named(cfg Config) bool { return cfg.Card != "" && cfg.Card != open.Auto }

// driven is the body of the card that a runtime drives; empty: none answers.
func driven(ctx context.Context, cfg Config) string {
	c, err := Runtime(ctx, cfg)
	if c == nil || err != nil {
		return ""
	}
	defer c.Close()
	var s admin.Status
	if _, err := c.Get(ctx, "status", nil, &s); err != nil {
		return ""
	}
	return s.Body
}

func machineChecks(ctx context.Context, cfg Config) ([]Finding, error) {
	d := cfg.Machine.Discover()
	checks := []Finding{}
	for _, c := range discover.Doctor(d) {
		checks = append(checks, check(c.Name, c.Status, c.Number, c.Why, c.Fix))
	}
	if named(cfg) {
		choice, err := open.Choose(cfg.Card, d)
		if err != nil {
			return nil, err
		}
		if choice.Body != open.VFIO {
			excuse(checks, choice.Body)
		}
		return append(checks, vectors(ctx, cfg, choice)...), nil
	}
	if body := driven(ctx, cfg); body != "" && body != open.VFIO {
		excuse(checks, body)
	}
	list, err := discover.List(d)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		checks = append(checks, check("interrupt vectors", discover.NA, "", "there is no card", "splicectl card doctor --card emu looks at the emulated one"))
	}
	for i := range list {
		c := &list[i]
		if !c.Usable {
			checks = append(checks, check(c.Address+" interrupt vectors", discover.NA, "", "the card cannot be opened: "+c.Why, c.Next))
			continue
		}
		checks = append(checks, vectors(ctx, cfg, open.Choice{Body: open.VFIO, Name: c.Address})...)
	}
	return checks, nil
}

// excuse takes back what a machine lacks only for a card on its bus.
func excuse(checks []Finding, body string) {
	for i := range checks {
		if c := &checks[i]; c.Status == discover.Fail.String() {
			*c = check(c.Name, discover.NA, c.Number, "a card over "+body+" does without it: "+c.Why, "")
		}
	}
}

// vectors opens a card and tries its interrupt vectors.
func vectors(ctx context.Context, cfg Config, choice open.Choice) []Finding {
	name := choice.Name
	if name == "" {
		name = choice.Body
	}
	card, err := open.Open(ctx, choice, open.Config{VFIO: cfg.VFIO, Machine: cfg.Machine})
	if err != nil {
		f := Explain("open card", err)
		status := discover.Fail
		if errors.Is(err, device.ErrBusy) {
			status = discover.NA // it works for somebody
		}
		return []Finding{check(name+" interrupt vectors", status, "", f.Why, f.Do)}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = card.Run(ctx) })
	checks := append(byKernel(ctx, name, card), byCard(ctx, name, card)...)
	cancel()
	running.Wait()
	if err := card.Detach(); err != nil {
		checks = append(checks, check(name+" close", discover.Fail, "", err.Error(), ""))
	}
	return checks
}

// byKernel has the kernel raise each vector.
func byKernel(ctx context.Context, name string, card *open.Card) []Finding {
	line := name + " vectors by VFIO"
	bus := card.Bus()
	switch {
	case bus == nil:
		return []Finding{check(line, discover.NA, "", "no kernel is between this card and its host", "")}
	case bus.IOMMU() == string(vfio.NoIOMMU):
		return []Finding{check(line, discover.NA, "", "a card without IOMMU is opened for its registers only", "")}
	}
	loops, err := bus.LoopVectors(ctx, patience)
	if err != nil && len(loops) == 0 {
		return []Finding{check(line, discover.Fail, "0 vectors", err.Error(), "dmesg | grep -i vfio")}
	}
	var checks []Finding
	for _, l := range loops {
		checks = append(checks, raised(fmt.Sprintf("%s vector %d by VFIO", name, l.Vector), l.Took, l.Err, "dmesg | grep -i -e vfio -e remap"))
	}
	return checks
}

func raised(name string, took time.Duration, err error, fix string) Finding {
	if err == nil {
		return check(name, discover.OK, took.Round(time.Microsecond).String(), "", "")
	}
	why := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		why = "it was raised and did not arrive"
	}
	return check(name, discover.Fail, "none after "+took.Round(time.Millisecond).String(), why, fix)
}

// byCard has the card raise each vector, by the register that is made for it. It is stored to only when the card has said
// who it is.
func byCard(ctx context.Context, name string, card *open.Card) []Finding {
	line := name + " vectors by the card"
	if bus := card.Bus(); bus != nil && bus.IOMMU() == string(vfio.NoIOMMU) {
		return []Finding{check(line, discover.NA, "", "a card without IOMMU is not bus master, and cannot raise any", "")}
	}
	fail := func(err error, fix string) []Finding {
		return []Finding{check(line, discover.Fail, "", err.Error(), fix)}
	}
	if _, err := driver.Open(ctx, card, driver.Config{Shell: true}); err != nil {
		return fail(err, "splicectl card list; the function may be another card's")
	}
	back, err := master(card)
	if err != nil {
		return fail(err, "")
	}
	defer back()
	n := card.Info().Vectors
	if n == 0 {
		return fail(errors.New("the card has none"), "")
	}
	if err := card.EnableVectors(n); err != nil {
		return fail(err, "dmesg | grep -i vfio")
	}
	var checks []Finding
	for v := range n {
		line := fmt.Sprintf("%s vector %d by the card", name, v)
		bit := regs.SetControlInterruptTestVectors(0, 1<<v)
		if bit == 0 {
			checks = append(checks, check(line, discover.NA, "", "the test register does not reach it", ""))
			continue
		}
		once, cancel := context.WithTimeout(ctx, patience)
		begin := time.Now()
		card.Store32(device.Bar0, uint64(regs.ControlInterruptTest), bit)
		_, err := card.Wait(once, v)
		cancel()
		checks = append(checks, raised(line, time.Since(begin), err, "splicectl card reset; if VFIO's trigger arrives and this does not, the card or its slot is at fault"))
	}
	if err := card.EnableVectors(0); err != nil {
		checks = append(checks, check(line, discover.Fail, "", err.Error(), ""))
	}
	return checks
}

// PCI configuration space.
const (
	configCommand = 4
	busMaster     = 1 << 2
)

// master makes the card bus master, which it has to be to raise a vector, until back is called.
func master(card *open.Card) (back func(), err error) {
	var was [2]byte
	if err := card.ReadConfig(configCommand, was[:]); err != nil {
		return nil, err
	}
	now := was
	now[0] |= busMaster
	return func() { _ = card.WriteConfig(configCommand, was[:]) }, card.WriteConfig(configCommand, now[:])
}

// RedFailure is the Failure of checks that failed; nil: none did.
func RedFailure(checks []Finding) error {
	var names []string
	for _, c := range checks {
		if c.Status == discover.Fail.String() {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &Failure{words: words{What: fmt.Sprintf("%d of %d checks failed", len(names), len(checks)), Why: strings.Join(names, ", "), Do: "each line above names its fix", Exit: ExitFailed}}
}
