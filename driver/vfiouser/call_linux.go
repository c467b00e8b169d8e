package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"time"

	"splicenic/driver/device"
)

// call is a command under way and its reply.
type call struct {
	cmd   command
	req   []byte // header and payload
	body  []byte // payload of the reply
	fds   []int  // of the reply; closed with the call unless taken out
	head  header // of the reply
	done  chan struct{}
	timer *time.Timer
}

func newCall() any {
	k := &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	k.timer.Stop()
	return k
}

// get returns a call with room for the header; put takes it back.
func (c *Client) get(cmd command) *call {
	k := c.calls.Get().(*call)
	k.cmd, k.req, k.body, k.fds, k.head = cmd, start(k.req), k.body[:0], nil, header{}
	return k
}

func (c *Client) put(k *call) { c.calls.Put(k) }

// ask sends a command whose payload fill appends and waits for the reply.
func (c *Client) ask(cmd command, fill func([]byte) []byte, fds []int) (*call, error) {
	k := newCall().(*call)
	k.cmd, k.req = cmd, start(nil)
	if fill != nil {
		k.req = fill(k.req)
	}
	return k, c.do(k, fds)
}

// do sends a call and waits for its reply. An error reply is an error; file descriptors nobody asked for are closed.
func (c *Client) do(k *call, fds []int) error {
	id, ok := c.expect(k)
	if !ok {
		return c.Err()
	}
	putHeader(k.req, header{id: id, cmd: k.cmd})
	if err := c.conn.write(k.req, fds); err != nil {
		c.drop(err)
		return c.forget(id, k)
	}
	k.timer.Reset(c.opt.Timeout)
	select {
	case <-k.done:
	case <-c.gone:
		return c.forget(id, k)
	case <-k.timer.C:
		c.drop(fmt.Errorf("%v: no answer within %v", k.cmd, c.opt.Timeout))
		return c.forget(id, k)
	}
	k.timer.Stop()
	if k.cmd != cmdVersion && k.cmd != cmdRegionInfo {
		closeAll(k.fds)
		k.fds = nil
	}
	if k.head.failed() {
		closeAll(k.fds)
		k.fds = nil
		return fmt.Errorf("%v: %w", k.cmd, errnoError(errno(k.head.errno)))
	}
	return nil
}

// expect gives a call its id.
func (c *Client) expect(k *call) (uint16, bool) {
	c.pmu.Lock()
	defer c.pmu.Unlock()
	if !c.reading {
		return 0, false
	}
	for c.id++; c.pending[c.id] != nil; c.id++ { // as many calls as ids are never under way
	}
	c.pending[c.id] = k
	return c.id, true
}

// forget ends a call that got no reply. The reply may have come after all, and nobody must write to the call any more.
func (c *Client) forget(id uint16, k *call) error {
	k.timer.Stop()
	c.pmu.Lock()
	delete(c.pending, id)
	c.pmu.Unlock()
	select {
	case <-k.done:
		closeAll(k.fds)
		k.fds = nil
	default:
	}
	return c.Err()
}

// post sends a command that has no reply.
func (c *Client) post(k *call, fds []int) error {
	putHeader(k.req, header{cmd: k.cmd, flags: flagNoReply})
	err := c.conn.write(k.req, fds)
	if err != nil {
		c.drop(err)
		return c.Err()
	}
	return nil
}

// receive hands replies to those who wait and answers the server's own commands, until the connection ends.
func (c *Client) receive(conn *conn) {
	var out []byte
	for {
		m, err := conn.read(time.Time{})
		if err == nil {
			if m.reply() && conn == c.conn {
				err = c.arrived(m)
			} else {
				out, err = c.serve(conn, m, out)
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("it closed the connection: %w", err)
			}
			c.drop(err)
			return
		}
	}
}

// arrived takes in a reply.
func (c *Client) arrived(m message) error {
	c.pmu.Lock()
	defer c.pmu.Unlock()
	k := c.pending[m.id]
	if k == nil || k.cmd != m.cmd || m.many {
		closeAll(m.fds)
		return violation("reply %d to %v, which was not asked", m.id, m.cmd)
	}
	delete(c.pending, m.id)
	k.head, k.fds = m.header, m.fds
	k.body = append(k.body[:0], m.body...)
	k.done <- struct{}{}
	return nil
}

// serve does what the server asks: it reads and writes memory that it was not given a file of.
func (c *Client) serve(conn *conn, m message, out []byte) ([]byte, error) {
	closeAll(m.fds)
	if m.reply() {
		return out, violation("reply on the second socket")
	}
	out = start(out)
	var err error
	switch m.cmd {
	case cmdDMARead:
		out, err = c.dmaRead(m.body, out)
	case cmdDMAWrite:
		out, err = c.dmaWrite(m.body, out)
	default:
		err = fmt.Errorf("%v from the server: %w", m.cmd, device.ErrNotSupported)
	}
	switch {
	case m.noReply():
		return out, nil
	case err != nil:
		return out, conn.reply(m.header, errnoOf(err))
	}
	putHeader(out, header{id: m.id, cmd: m.cmd, flags: typeReply})
	return out, conn.write(out, nil)
}

func (c *Client) dmaRead(body, out []byte) ([]byte, error) {
	a, err := decodeDMAAccess(body, false)
	if err != nil {
		return out, err
	}
	out = appendDMAAccess(out, a)
	err = c.reach(a.iova, a.count, func(b []byte) { out = append(out, b...) })
	return out, err
}

func (c *Client) dmaWrite(body, out []byte) ([]byte, error) {
	a, err := decodeDMAAccess(body, true)
	if err != nil {
		return out, err
	}
	p := a.data
	err = c.reach(a.iova, a.count, func(b []byte) { p = p[copy(b, p):] })
	a.data = nil
	return appendDMAAccess(out, a), err
}
