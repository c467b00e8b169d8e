package bench

import (
	"bytes"
	"fmt"

	"splicenic/emu"
	"splicenic/tools/tcppeer"
)

// responseBytes fits one segment.
const responseBytes = 1024

// requestOf makes a request head of the given length.
func requestOf(length int) []byte {
	b := []byte("GET / HTTP/1.1\r\nHost: bench.example\r\nX-Fill: ")
	b = append(b, bytes.Repeat([]byte{'x'}, length-len(b)-4)...)
	return append(b, "\r\n\r\n"...)
}

// lives carries whole connections: SYN, request of 512 bytes, splice, one response segment, both FINs.
type lives struct {
	rig            *rig
	client, server *tcppeer.Port
	next           uint32 // flow number of the next connection
	open, done     int
	failed         int
}

func newLives(g emu.Geometry) (*lives, error) {
	r, err := newRig(g)
	if err != nil {
		return nil, err
	}
	l := &lives{rig: r}
	request, response := requestOf(512), bytes.Repeat([]byte{'y'}, responseBytes)
	l.client, l.server = r.peers(
		tcppeer.Config{TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			switch e {
			case tcppeer.Established:
				c.Write(request)
			case tcppeer.PeerClosed:
				if len(c.Bytes()) != len(response) {
					l.failed++
				}
				c.CloseWrite()
			case tcppeer.Closed:
				l.open--
				l.done++
			case tcppeer.Reset, tcppeer.TimedOut:
				l.open--
				l.failed++
			}
		}},
		tcppeer.Config{TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Data && len(c.Bytes()) == len(request) {
				c.Write(response)
				c.CloseWrite()
			}
		}})
	return l, nil
}

// run carries n connections to their end, a few dozen at a time.
func (l *lives) run(n int) error {
	const window = 64
	end := l.done + n
	for started := 0; l.done+l.failed < end; {
		now := l.rig.now()
		for ; started < n && l.open < window; started++ {
			if _, err := l.client.Host.Dial(now, endpoint(l.next), vip); err != nil {
				return fmt.Errorf("open connection: %w", err)
			}
			l.next = (l.next + 1) % (addresses * 512)
			l.open++
		}
		l.client.Advance(now)
		l.server.Advance(now)
		l.rig.step()
		if now > l.rig.deadline {
			return fmt.Errorf("%d connections of %d after %v, %d failed", l.done, end, now, l.failed)
		}
	}
	if l.failed != 0 {
		return fmt.Errorf("%d of %d connections failed", l.failed, n)
	}
	return nil
}

// lifecycles returns how many connections a second one core carries, and what one allocates.
func lifecycles(cfg Config) (perSecond, allocs float64, err error) {
	l, err := newLives(emu.Geometry{})
	if err != nil {
		return 0, 0, err
	}
	defer l.rig.close()
	if err := l.run(max(cfg.Lives/8, 2000)); err != nil { // buffers grow, pages are touched
		return 0, 0, err
	}
	before, start := mallocs(), processTime()
	if err := l.run(cfg.Lives); err != nil {
		return 0, 0, err
	}
	spent := processTime() - start
	return float64(cfg.Lives) / spent.Seconds(), perRun(mallocs()-before, cfg.Lives), nil
}
