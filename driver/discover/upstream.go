package discover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"splicenic/driver/vfio"
)

// ErrNoPort: the card hangs on no port of PCI Express that could be told to keep quiet.
var ErrNoPort = errors.New("no upstream port")

// Registers of a port. Those in capabilities count from the capability's begin.
const (
	regCommand       = 0x04
	commandSERR      = 1 << 8
	regBridgeControl = 0x3e
	bridgeSERR       = 1 << 1
	bridgeReset      = 1 << 6

	expressDevCtl = 0x08
	devCtlFatal   = 1 << 2 // FERE: fatal errors are reported

	extAER            = 0x0001
	aerStatus         = 0x04
	aerMask           = 0x08
	aerSurpriseDown   = 1 << 5
	extDPC            = 0x001d
	dpcControl        = 0x06
	dpcTriggerEnabled = 3 // both bits
)

// A Quiet is the port above a card, which is told not to take the card's leaving of its bus for a failure of the machine:
// without, some machines stop at once. What Mask changed Restore puts back; call it on every path.
type Quiet struct {
	Port string // address
	Card string

	cfg  Config
	dir  string
	done []quieted
}

// quieted is a field of the port's registers as it was.
type quieted struct {
	name  string
	at    int64
	bytes int
	mask  uint32
	old   uint32
}

// Upstream finds the port above a card. It refuses where another device hangs on the same port, which would lose its link,
// too. A card without a port of PCI Express above it is an ErrNoPort.
func Upstream(cfg Config, address string) (*Quiet, error) {
	at, err := vfio.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	real, err := filepath.EvalSymlinks(cfg.device(at))
	if err != nil {
		return nil, fmt.Errorf("find the port above %s: %w", at, err)
	}
	dir := filepath.Dir(real)
	port, err := vfio.ParseAddress(filepath.Base(dir))
	if err != nil {
		return nil, fmt.Errorf("find the port above %s: it is below %s: %w", at, filepath.Base(dir), ErrNoPort)
	}
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find the port above %s: %w", at, err)
	}
	var others []string
	for _, e := range es {
		if a, err := vfio.ParseAddress(e.Name()); err == nil && a != at {
			others = append(others, a)
		}
	}
	if len(others) > 0 {
		return nil, fmt.Errorf("boot %s: %s is behind the same port %s and would lose its link, too: %w", at, strings.Join(others, ", "), port, ErrRefused)
	}
	q := &Quiet{Port: port, Card: at, cfg: cfg, dir: dir}
	if _, err := q.fields(); err != nil {
		return nil, err
	}
	return q, nil
}

// Plan says what Mask does.
func (q *Quiet) Plan() string {
	return fmt.Sprintf("tell port %s above the card not to report that its link goes down (AER surprise down, SERR, fatal errors, DPC), until the end", q.Port)
}

// fields are what is to be masked, as the port has them.
func (q *Quiet) fields() ([]quieted, error) {
	config, err := readConfig(q.dir)
	if err != nil {
		return nil, fmt.Errorf("read configuration space of port %s: %w", q.Port, err)
	}
	if config[14]&0x7f != 1 {
		return nil, fmt.Errorf("%s above %s is no bridge: %w", q.Port, q.Card, ErrNoPort)
	}
	caps, err := vfio.Capabilities(config)
	if err != nil {
		return nil, fmt.Errorf("read capabilities of port %s (as root all of them can be read): %w", q.Port, err)
	}
	find := func(id uint16, extended bool) int {
		i := slices.IndexFunc(caps, func(c vfio.Capability) bool { return c.ID == id && c.Extended == extended })
		if i < 0 {
			return -1
		}
		return int(caps[i].Offset)
	}
	var list []quieted
	add := func(name string, base, at, bytes int, mask uint32) {
		if base < 0 || base+at+bytes > len(config) {
			return
		}
		f := quieted{name: name, at: int64(base + at), bytes: bytes, mask: mask}
		if f.old = get(config[base+at:], bytes); f.old == ones(bytes) {
			err = errors.Join(err, fmt.Errorf("%s of port %s reads all ones", name, q.Port))
		}
		list = append(list, f)
	}
	add("command", 0, regCommand, 2, commandSERR)
	add("bridge control", 0, regBridgeControl, 2, bridgeSERR)
	express := find(vfio.CapPCIe, false)
	if express < 0 {
		return nil, fmt.Errorf("port %s above %s is not of PCI Express: %w", q.Port, q.Card, ErrNoPort)
	}
	add("device control", express, expressDevCtl, 2, devCtlFatal)
	add("AER uncorrectable mask", find(extAER, true), aerMask, 4, aerSurpriseDown)
	add("DPC control", find(extDPC, true), dpcControl, 2, dpcTriggerEnabled)
	return list, err
}

func get(b []byte, bytes int) uint32 {
	if bytes == 2 {
		return uint32(binary.LittleEndian.Uint16(b))
	}
	return binary.LittleEndian.Uint32(b)
}

func ones(bytes int) uint32 { return 1<<(8*bytes) - 1 }

// Mask saves what the port does about errors and has it do nothing. A step that fails undoes those before it.
func (q *Quiet) Mask() error {
	if len(q.done) > 0 {
		return fmt.Errorf("mask errors of port %s: it was done", q.Port)
	}
	list, err := q.fields()
	if err != nil {
		return err
	}
	for _, f := range list {
		want := f.old &^ f.mask
		if f.bytes == 4 { // a mask: set bits are what is silent
			want = f.old | f.mask
		}
		if want == f.old {
			continue
		}
		q.done = append(q.done, f)
		if err := q.store(f.at, f.bytes, want); err != nil {
			return errors.Join(fmt.Errorf("mask errors of port %s: %s: %w", q.Port, f.name, err), q.Restore())
		}
	}
	return nil
}

// Restore puts back what Mask changed, and leaves alone what others changed beside it. What the port has seen of the link's
// end is cleared before it may be reported again.
func (q *Quiet) Restore() (err error) {
	for i := len(q.done) - 1; i >= 0; i-- {
		f := q.done[i]
		if f.bytes == 4 {
			err = errors.Join(err, q.store(f.at-aerMask+aerStatus, 4, aerSurpriseDown)) // a set bit clears
		}
		now, e := q.load(f.at, f.bytes)
		if e == nil && now == ones(f.bytes) {
			e = errors.New("it reads all ones")
		}
		if e == nil {
			e = q.store(f.at, f.bytes, now&^f.mask|f.old&f.mask)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("restore %s of port %s to %#x: %w; do: setpci -s %s %#x.%c=%x", f.name, q.Port, f.old, e, q.Port, f.at, map[int]rune{2: 'w', 4: 'l'}[f.bytes], f.old))
		}
	}
	q.done = nil
	return err
}

// Reset resets the bus behind the port, and with it the card, which then has time to train its link again.
func (q *Quiet) Reset(ctx context.Context) error {
	old, err := q.load(regBridgeControl, 2)
	if err == nil {
		err = q.store(regBridgeControl, 2, old|bridgeReset)
	}
	if err != nil {
		return fmt.Errorf("reset the bus behind port %s: %w", q.Port, err)
	}
	// PCI Express asks for 1 ms; the configuration of a card that is slow may begin only 100 ms after its end (6.6.1).
	wait(ctx, 10*time.Millisecond)
	if err := q.store(regBridgeControl, 2, old&^bridgeReset); err != nil {
		return fmt.Errorf("end the reset of the bus behind port %s: %w", q.Port, err)
	}
	wait(ctx, 100*time.Millisecond)
	return ctx.Err()
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (q *Quiet) load(at int64, bytes int) (uint32, error) {
	f, err := os.Open(filepath.Join(q.dir, "config"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var b [4]byte
	if _, err := f.ReadAt(b[:bytes], at); err != nil {
		return 0, err
	}
	return get(b[:], bytes), nil
}

// store stores a register in one call; the kernel makes one access of it.
func (q *Quiet) store(at int64, bytes int, v uint32) error {
	f, err := os.OpenFile(filepath.Join(q.dir, "config"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	_, err = f.WriteAt(b[:bytes], at)
	return errors.Join(err, f.Close())
}
