package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"splicenic/emu/port"
	"splicenic/tools/tcppeer"
)

// RunInMemory carries n requests over ports in memory: the same card, runtime and plan, our own TCP at both ends, and time
// that passes in steps, so that a second run shows the same lines. live shows the requests as they end; nil: not at all.
func RunInMemory(ctx context.Context, n int, why string, live io.Writer) (*Report, error) {
	if err := checkRequests(n); err != nil {
		return nil, err
	}
	r := &Report{Mode: "memory", Why: why}
	m := &memoryNet{ctx: ctx, board: newBoard(live, r), plan: plan(n), begun: map[*tcppeer.Conn]begun{}}
	if err := m.build(); err != nil {
		return r, err
	}
	err := m.run()
	if err == nil {
		err = m.stack.read(ctx, r)
	}
	return r, errors.Join(err, m.stack.close())
}

const (
	tick     = 10 * time.Microsecond // how far time moves when the card has worked
	idleTick = time.Millisecond      // and when it has not
	inFlight = 8
)

// memoryNet is a client, the card and one host with the servers' addresses.
type memoryNet struct {
	ctx            context.Context
	stack          *stack
	board          *board
	plan           []request
	now            time.Duration
	client, server *tcppeer.Port
	next, open     int
	begun          map[*tcppeer.Conn]begun
	answered       []*tcppeer.Conn // the server has closed, the client not yet
	err            error
}

type begun struct {
	number int
	at     time.Duration
}

// build makes the hosts and the card between them.
func (m *memoryNet) build() (err error) {
	const queue = 1024
	macs := [4][6]byte{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 1, 1}, {2, 0, 0, 0, 1, 2}} // card, card, client, server
	var serverPrefixes []netip.Prefix
	for _, s := range servers {
		for _, p := range s.prefixes {
			serverPrefixes = append(serverPrefixes, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	var own []netip.Prefix
	for _, p := range clientPrefixes {
		own = append(own, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	m.client = tcppeer.NewPort(macs[0], queue, tcppeer.Config{MAC: macs[2], NextHop: macs[0], Addresses: own, SACK: true, Timestamps: true, WindowScale: 7, Seed: 1, Handle: m.clientEvent})
	m.server = tcppeer.NewPort(macs[1], queue, tcppeer.Config{MAC: macs[3], NextHop: macs[1], Addresses: serverPrefixes, SACK: true, Timestamps: true, WindowScale: 7, Seed: 2, Handle: serverEvent})
	m.server.Host.Listen(80)
	m.stack, err = newStack([2]port.Port{m.client, m.server})
	return err
}

func (m *memoryNet) run() error {
	if err := m.stack.start(m.ctx, [2]string{"mem", "mem"}, func() time.Duration { return m.now }); err != nil {
		return err
	}
	limit := m.now + 5*time.Minute
	for all := false; !all; {
		var err error
		if all, err = m.stack.resolved(m.ctx); err != nil {
			return err
		}
		if err := m.step(); err != nil {
			return err
		}
		if m.now > limit {
			return errors.New("the servers' MAC addresses were not resolved")
		}
	}
	begin := m.now
	for m.next < len(m.plan) || m.open > 0 {
		for ; m.next < len(m.plan) && m.open < inFlight; m.next++ {
			m.dial(m.next)
		}
		if err := m.step(); err != nil {
			return err
		}
		if m.now > limit {
			return fmt.Errorf("%d requests of %d have not ended", m.open, len(m.plan))
		}
	}
	m.board.end(m.now - begin)
	for !m.stack.atRest() && m.now < limit {
		if err := m.step(); err != nil {
			return err
		}
	}
	return nil
}

// step lets everything work once.
func (m *memoryNet) step() error {
	m.client.Advance(m.now)
	m.server.Advance(m.now)
	worked := m.stack.card.Step(m.now)
	if err := m.stack.daemon.Step(m.now); err != nil {
		return err
	}
	m.judge()
	if m.err != nil {
		return m.err
	}
	if worked || m.client.Waiting()+m.server.Waiting() > 0 {
		m.now += tick
	} else {
		m.now += idleTick
	}
	return m.ctx.Err()
}

func (m *memoryNet) dial(i int) {
	r := &m.plan[i]
	from := clientPrefixes[0].Addr()
	if r.vip.Addr().Is6() {
		from = clientPrefixes[1].Addr()
	}
	c, err := m.client.Host.Dial(m.now, netip.AddrPortFrom(from, 0), r.vip)
	if err != nil {
		m.err = err
		return
	}
	m.begun[c] = begun{i, m.now}
	m.open++
}

// clientEvent sends the request and notes how the connection goes on. It is called while the card works.
func (m *memoryNet) clientEvent(c *tcppeer.Conn, e tcppeer.Event) {
	b, ok := m.begun[c]
	switch {
	case !ok || e == tcppeer.Data: // judged already, or not yet
	case e == tcppeer.Established:
		c.Write([]byte(m.plan[b.number].head()))
	case e == tcppeer.PeerClosed:
		m.answered = append(m.answered, c)
	case e == tcppeer.Reset:
		m.end(c, Outcome{Error: "connection reset"})
	case e == tcppeer.TimedOut:
		m.end(c, Outcome{Error: "connection timed out"})
	}
}

// judge looks at the answers that have come. It uses the card and is called between two steps.
func (m *memoryNet) judge() {
	for _, c := range m.answered {
		var o Outcome
		var err error
		if o.Server, o.Error = answerOf(c.Bytes()); o.Error == "" {
			if o.sight, err = m.stack.see(m.ctx, c.Local(), m.plan[m.begun[c].number].vip); err != nil {
				o.Error = err.Error()
			}
		}
		m.end(c, o)
		c.CloseWrite()
	}
	m.answered = m.answered[:0]
}

// end puts an outcome on the board.
func (m *memoryNet) end(c *tcppeer.Conn, o Outcome) {
	b := m.begun[c]
	r := &m.plan[b.number]
	delete(m.begun, c)
	m.open--
	o.Number, o.Host, o.Path, o.Client = b.number+1, r.host, r.path, c.Local().String()
	o.Ms = float64(m.now-b.at) / float64(time.Millisecond)
	m.board.add(o, r.may)
}

// answerOf returns the server's name from an HTTP response, or what is wrong with it.
func answerOf(b []byte) (name, wrong string) {
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		return "", err.Error()
	}
	defer res.Body.Close()
	return readAnswer(res)
}

// readAnswer takes the server's name, which is both a field and the body.
func readAnswer(res *http.Response) (name, wrong string) {
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	switch name = res.Header.Get("Server"); {
	case err != nil:
		return "", err.Error()
	case res.StatusCode != http.StatusOK:
		return "", res.Status
	case string(bytes.TrimSpace(body)) != name:
		return "", fmt.Sprintf("body %q from server %q", body, name)
	}
	return name, ""
}

// serverEvent is an HTTP server as small as can be: it answers a whole head with the name of its address.
func serverEvent(c *tcppeer.Conn, e tcppeer.Event) {
	switch {
	case e == tcppeer.PeerClosed:
		c.CloseWrite()
	case e == tcppeer.Data && bytes.HasSuffix(c.Bytes(), []byte("\r\n\r\n")):
		name := serverNamed(c.Local().Addr())
		c.Discard(len(c.Bytes()))
		c.Write(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nServer: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", name, len(name)+1, name))
		c.CloseWrite()
	}
}
