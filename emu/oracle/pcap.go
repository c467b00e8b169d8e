package oracle

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"splicenic/emu/port"
)

// ReadPcap watches two captures, of the client's wire and of the server's, taken at the card at the same time. Frames are
// as a kernel hands them over: coalesced, with partial checksums. Whose a frame is its addresses tell, once a SYN has
// shown which end of a connection is the card's.
func ReadPcap(clientPcap, serverPcap string, cfg Config) ([]Violation, Summary, error) {
	cfg.Coalesced = true
	cfg.Slack = max(cfg.Slack, time.Millisecond)
	var files [2]capture
	for i, name := range []string{clientPcap, serverPcap} {
		f, err := os.Open(name)
		if err != nil {
			return nil, Summary{}, fmt.Errorf("read capture: %w", err)
		}
		defer f.Close()
		if err := files[i].open(f); err != nil {
			return nil, Summary{}, fmt.Errorf("read capture %s: %w", name, err)
		}
	}
	o := New(cfg)
	name := func(i int) string { return [...]string{clientPcap, serverPcap}[i] }
	if at, i, err := readBoth(o, &files); err != nil {
		return nil, Summary{}, fmt.Errorf("read capture %s, after %v: %w", name(i), at, err)
	}
	return o.Finish(), o.Summary(), nil
}

// capture is a file with its next frame at hand.
type capture struct {
	*port.Capture
	bytes []byte // nil: there is none
	at    int64
	ends  map[netip.AddrPort]bool // where SYNs went to
}

func (c *capture) open(r io.Reader) (err error) {
	if c.Capture, err = port.NewCapture(r); err != nil {
		return err
	}
	c.ends = map[netip.AddrPort]bool{}
	return c.next()
}

func (c *capture) next() (err error) {
	c.bytes, c.at, err = c.Next()
	if errors.Is(err, io.EOF) {
		c.bytes, err = nil, nil
	}
	return err
}

// maxEnds bounds how many addresses and ports are learned from SYNs.
const maxEnds = 65_536

// readBoth merges two captures by time. Of two frames at the same time one to the card goes first: it may be the cause of
// the other.
func readBoth(o *Oracle, files *[2]capture) (at time.Duration, file int, err error) {
	var start int64
	var from [2]bool
	for i := range files {
		from[i] = files[i].fromCard(Wire(i))
		if c := &files[i]; c.bytes != nil && (start == 0 || c.at < start) {
			start = c.at
		}
	}
	for {
		a, b := &files[0], &files[1]
		switch {
		case a.bytes == nil && b.bytes == nil:
			return at, 0, nil
		case a.bytes == nil || b.bytes != nil && (b.at < a.at || b.at == a.at && from[0] && !from[1]):
			file = 1
		default:
			file = 0
		}
		c := &files[file]
		at = max(at, time.Duration(c.at-start))
		o.Frame(Wire(file), from[file], at, c.bytes)
		if err := c.next(); err != nil {
			return at, file, err
		}
		from[file] = c.fromCard(Wire(file))
	}
}

// fromCard says who sent the frame at hand: the card is whom clients' SYNs go to, and who sends them to servers.
func (c *capture) fromCard(w Wire) bool {
	var s segment
	if c.bytes == nil {
		return false
	}
	if v := parse(c.bytes, &s); v != good && v != partial {
		return false
	}
	if s.flags&(syn|ack|rst|fin) == syn && len(c.ends) < maxEnds {
		c.ends[s.dst] = true
	}
	if w == ClientWire {
		return c.ends[s.src]
	}
	return c.ends[s.dst]
}
