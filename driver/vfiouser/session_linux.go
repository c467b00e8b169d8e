package vfiouser

import (
	"errors"
	"fmt"
	"time"
)

// queueLen and queueBytes bound what is kept of a client that sends on while an access to its memory is under way.
const (
	queueLen   = 1024
	queueBytes = 4 << 20
)

// session is one client's time with the function. One goroutine, the one of run, answers its commands in order. Who holds
// the token reads the socket: mostly that goroutine, and in its place one that waits for the answer to a DMA message of
// ours while that goroutine is busy. Such a reader puts commands into the queue, whence run takes them first.
type session struct {
	srv   *Server
	conn  *conn
	pid   int
	left  chan struct{} // closed by the server when the client is gone
	ended chan struct{} // closed by the server when the next client may come
	over  chan struct{} // closed when nothing is answered any more

	token chan struct{} // room for one
	queue chan message
	debt  debt
	body  []byte // of the command being answered
	out   []byte // the reply being made

	transfer uint64 // largest data of one DMA message
	messages dmaLink
}

func newSession(s *Server, c *conn, pid int) *session {
	ses := &session{
		srv: s, conn: c, pid: pid, left: make(chan struct{}), ended: make(chan struct{}), over: make(chan struct{}),
		token: make(chan struct{}, 1), queue: make(chan message, queueLen),
	}
	ses.messages.init(ses)
	return ses
}

// leaving says whether the client is gone.
func (s *session) leaving() bool {
	select {
	case <-s.left:
		return true
	default:
		return false
	}
}

// run answers until the client is gone, and says why it ended.
func (s *session) run() error {
	if err := s.introduce(); err != nil {
		return err
	}
	s.srv.dma.begin()
	s.srv.memory.setLink(&s.messages)
	for {
		m, err := s.next()
		if err != nil {
			return err
		}
		if err := s.answer(&m); err != nil {
			return err
		}
	}
}

// next returns the next command: what was queued, then what is read.
func (s *session) next() (message, error) {
	for {
		select {
		case m := <-s.queue:
			return s.unqueue(m), nil
		default:
		}
		select {
		case m := <-s.queue:
			return s.unqueue(m), nil
		case s.token <- struct{}{}:
		}
		if len(s.queue) > 0 { // put there while we waited for the token
			<-s.token
			continue
		}
		m, err := s.read()
		<-s.token
		if err != nil || !m.reply() {
			return m, err
		}
	}
}

// read reads one message while the token is held. A reply is delivered before the token is free, so that who waits for it
// does not read on for it.
func (s *session) read() (message, error) {
	m, err := s.conn.read(time.Time{})
	if err != nil {
		return m, s.fatal(m, err)
	}
	if m.reply() {
		return m, s.messages.arrived(m)
	}
	s.conn.body, s.body = s.body[:0], m.body // another reader gets another buffer
	s.count(&m)
	return m, nil
}

// count notes that a command was read whose reply the client waits for.
func (s *session) count(m *message) {
	if !m.noReply() {
		s.debt.add()
	}
}

func (s *session) unqueue(m message) message {
	s.messages.queued.Add(-int64(m.size))
	return m
}

// fatal tells the client, if it can, why nothing more will be answered.
func (s *session) fatal(m message, err error) error {
	if errors.Is(err, errProtocol) {
		s.conn.reply(s.conn.head, eINVAL)
	}
	return err
}

// introduce exchanges versions.
func (s *session) introduce() error {
	m, err := s.conn.read(time.Now().Add(introduction))
	if err != nil {
		return s.fatal(m, fmt.Errorf("wait for the version: %w", err))
	}
	closeAll(m.fds)
	v, err := version{}, violation("the first message is %v", m.cmd)
	if m.cmd == cmdVersion && !m.reply() && !m.noReply() {
		v, err = decodeVersion(m.body)
	}
	if err == nil && v.major != protocolMajor {
		err = violation("version %d.%d", v.major, v.minor)
	}
	if err != nil {
		s.conn.reply(m.header, eINVAL)
		return err
	}
	return s.welcome(m.header, v)
}

// welcome sends our version, and the second socket if the client takes one.
func (s *session) welcome(h header, v version) error {
	s.transfer = v.caps.maxTransfer()
	r := answer(v, s.srv.info)
	var fds []int
	if v.caps.twin() && v.caps.maxFDs() > 0 {
		c, fd, err := socketPair()
		if err != nil {
			s.conn.reply(h, errnoOf(err))
			return err
		}
		defer closeAll([]int{fd})
		s.messages.twin = c
		fds = []int{fd}
		r.caps.Twin = &twin{Supported: true, Index: pointer(uint64(0))}
	}
	b, err := appendVersion(start(s.out), r)
	if err != nil {
		return err
	}
	putHeader(b, header{id: h.id, cmd: h.cmd, flags: typeReply})
	return s.conn.write(b, fds)
}

// answer does what a command says and replies to it. Its error ends the session.
func (s *session) answer(m *message) error {
	out, fds, err := s.do(m)
	closeAll(m.fds)
	if m.noReply() {
		if err != nil {
			s.srv.log.Debug("command without reply failed", "command", m.cmd, "err", err)
		}
		return nil
	}
	defer s.debt.pay()
	if err != nil {
		s.srv.log.Debug("command failed", "command", m.cmd, "err", err)
		return s.conn.reply(m.header, errnoOf(err))
	}
	if out == nil {
		return s.conn.reply(m.header, 0)
	}
	s.out = out[:0]
	putHeader(out, header{id: m.id, cmd: m.cmd, flags: typeReply})
	return s.conn.write(out, fds)
}

// do returns the reply, header and payload, of which nil is the header alone. A handler that keeps file descriptors takes
// them out of the message.
func (s *session) do(m *message) (out []byte, fds []int, err error) {
	if m.cmd != cmdDMAMap {
		if err := s.srv.dma.commit(); err != nil { // maps that nobody waits for take effect before anything else
			s.srv.log.Warn("dma map without reply failed", "client", s.pid, "err", err)
		}
	}
	if m.many || len(m.fds) != 0 && m.cmd != cmdDMAMap && m.cmd != cmdSetIRQs {
		return nil, nil, violation("%v with %d or more file descriptors", m.cmd, len(m.fds))
	}
	switch m.cmd {
	case cmdRegionRead:
		out, err = s.readRegion(m.body)
	case cmdRegionWrite:
		out, err = s.writeRegion(m.body)
	case cmdDMAMap:
		err = s.mapDMA(m)
	case cmdDMAUnmap:
		out, err = s.unmapDMA(m.body)
	case cmdDeviceInfo:
		out, err = s.deviceInfo(m.body)
	case cmdRegionInfo:
		return s.regionInfo(m.body)
	case cmdIRQInfo:
		out, err = s.irqInfo(m.body)
	case cmdSetIRQs:
		err = s.setIRQs(m)
	case cmdReset:
		err = s.srv.reset()
	case cmdVersion:
		err = violation("a second version")
	default:
		err = fmt.Errorf("%v: %w", m.cmd, eNOTSUP)
	}
	return out, nil, err
}

// end takes back what the client had of the function. Files it gave for DMA stay, so that rings go on until they are
// full, and the next client finds no gap; what only messages reach goes, and with it the host.
func (s *session) end() {
	close(s.over)
	s.conn.close()
	s.messages.close()
	s.token <- struct{}{} // no other reader from here on
	s.srv.memory.setLink(nil)
	for i := range s.srv.irqs {
		s.srv.irqs[i].reset()
	}
	if err := s.srv.applyVectors(); err != nil {
		s.srv.log.Warn("the card kept its vectors", "err", err)
	}
	s.srv.dma.leave()
	for {
		select {
		case m := <-s.queue:
			closeAll(m.fds)
		default:
			return
		}
	}
}
