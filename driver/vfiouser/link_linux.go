package vfiouser

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"splicenic/driver/device"
)

// dmaLink reads and writes the client's memory by messages, one at a time, from any goroutine.
//
// With a second socket that is all there is to it. On the one socket a message waits until no reply is owed, for a client
// may look at nothing else before it has its reply; and whoever waits for the answer reads the socket if the session's
// goroutine does not. That goroutine may be the one that waits, or may need a lock that the one that waits holds: then
// neither goes on, and the time-out ends it.
type dmaLink struct {
	ses  *session
	twin *conn

	queued atomic.Int64 // bytes in the session's queue

	mu      sync.Mutex // held over one message
	id      uint16
	out     []byte
	replies chan message

	waiting sync.Mutex
	want    int // id of the message that is waited for, -1: none
	late    map[uint16]bool
}

func (l *dmaLink) init(s *session) {
	l.ses, l.want, l.late = s, -1, map[uint16]bool{}
	l.replies = make(chan message, 1)
}

func (l *dmaLink) close() {
	if l.twin != nil {
		l.twin.close()
	}
}

// shared says whether messages go where the client's commands come from.
func (l *dmaLink) shared() bool { return l.twin == nil }

// maxLate bounds the replies that may still come after their time-out; a client that owes more is not listening.
const maxLate = 16

var errLate = fmt.Errorf("the client did not answer in time: %w", device.ErrDMA)

func (l *dmaLink) readDMA(iova uint64, p []byte) error {
	return l.each(iova, p, func(iova uint64, p []byte) error {
		m, err := l.exchange(cmdDMARead, dmaAccess{iova: iova, count: uint64(len(p))})
		if err != nil {
			return err
		}
		a, err := decodeDMAAccess(m.body, true)
		if err != nil || a.iova != iova || a.count != uint64(len(p)) {
			return errors.Join(err, violation("reply to dma read of %d bytes at %#x is for %d at %#x", len(p), iova, a.count, a.iova), device.ErrDMA)
		}
		copy(p, a.data)
		return nil
	})
}

func (l *dmaLink) writeDMA(iova uint64, p []byte) error {
	return l.each(iova, p, func(iova uint64, p []byte) error {
		m, err := l.exchange(cmdDMAWrite, dmaAccess{iova: iova, count: uint64(len(p)), data: p})
		if err != nil {
			return err
		}
		at, n, err := decodeDMAWritten(m.body)
		if err != nil || at != iova || uint64(n) != uint64(len(p)) {
			return errors.Join(err, violation("reply to dma write of %d bytes at %#x is for %d at %#x", len(p), iova, n, at), device.ErrDMA)
		}
		return nil
	})
}

// each cuts an access to what the client takes in one message.
func (l *dmaLink) each(iova uint64, p []byte, do func(uint64, []byte) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for part := range slices.Chunk(p, int(l.ses.transfer)) {
		if err := do(iova, part); err != nil {
			return err
		}
		iova += uint64(len(part))
	}
	return nil
}

func (l *dmaLink) exchange(cmd command, a dmaAccess) (message, error) {
	l.id++
	l.out = appendDMAAccess(start(l.out), a)
	putHeader(l.out, header{id: l.id, cmd: cmd})
	var m message
	var err error
	if l.twin != nil {
		m, err = l.overTwin()
	} else {
		m, err = l.overSession()
	}
	switch {
	case err != nil:
		return m, errors.Join(err, device.ErrDMA)
	case m.cmd != cmd:
		return m, errors.Join(violation("reply to %v is a %v", cmd, m.cmd), device.ErrDMA)
	case m.failed():
		return m, fmt.Errorf("the client refused: %w: %w", errno(m.errno), device.ErrDMA)
	}
	return m, nil
}

// overTwin uses the second socket. Whatever goes wrong there ends the session: nobody knows what comes next.
func (l *dmaLink) overTwin() (message, error) {
	err := l.twin.write(l.out, nil)
	var m message
	if err == nil {
		m, err = l.twin.read(time.Now().Add(l.ses.srv.cfg.DMATimeout))
	}
	closeAll(m.fds)
	if err == nil && (!m.reply() || m.id != l.id) {
		err = violation("%v on the second socket", m.cmd)
	}
	if err != nil {
		l.ses.conn.close()
	}
	return m, err
}

// overSession uses the one socket.
func (l *dmaLink) overSession() (message, error) {
	timeout := time.NewTimer(l.ses.srv.cfg.DMATimeout)
	defer timeout.Stop()
	deadline := time.Now().Add(l.ses.srv.cfg.DMATimeout)
	for {
		none := l.ses.debt.wait()
		if none == nil {
			break
		}
		select {
		case <-none:
		case <-timeout.C:
			return message{}, fmt.Errorf("a reply is owed all the time: %w", device.ErrDMA)
		case <-l.ses.over:
			return message{}, device.ErrDMA
		}
	}
	if err := l.expect(l.id); err != nil {
		return message{}, err
	}
	if err := l.ses.conn.write(l.out, nil); err != nil {
		return message{}, err
	}
	for {
		select {
		case m := <-l.replies:
			return m, nil
		case <-timeout.C:
			return l.giveUp()
		case <-l.ses.over:
			return message{}, device.ErrDMA
		case l.ses.token <- struct{}{}:
			var err error
			if len(l.replies) == 0 { // it is delivered with the token held
				err = l.read(deadline)
			}
			<-l.ses.token
			if err != nil {
				return l.giveUp()
			}
		}
	}
}

// expect says which reply is waited for.
func (l *dmaLink) expect(id uint16) error {
	l.waiting.Lock()
	defer l.waiting.Unlock()
	if len(l.late) >= maxLate {
		return errLate
	}
	l.want = int(id)
	return nil
}

// giveUp stops waiting; a reply that comes all the same is passed over.
func (l *dmaLink) giveUp() (message, error) {
	l.waiting.Lock()
	defer l.waiting.Unlock()
	select {
	case m := <-l.replies: // just in time
		return m, nil
	default:
	}
	l.late[uint16(l.want)] = true
	l.want = -1
	return message{}, errLate
}

// read reads one message while the token is held: the reply, or a command for later.
func (l *dmaLink) read(deadline time.Time) error {
	if l.queued.Load() > queueBytes || len(l.ses.queue) == cap(l.ses.queue) {
		return errLate
	}
	m, err := l.ses.conn.read(deadline)
	if err != nil {
		if !errors.Is(err, errIdle) {
			l.ses.conn.close() // the session's goroutine finds out
		}
		return err
	}
	if m.reply() {
		err := l.arrived(m)
		if err != nil {
			l.ses.conn.close()
		}
		return err
	}
	l.ses.count(&m)
	m.body = slices.Clone(m.body)
	l.queued.Add(int64(m.size))
	l.ses.queue <- m
	return nil
}

// arrived takes a reply off the socket. One that nobody waits for ends the session.
func (l *dmaLink) arrived(m message) error {
	closeAll(m.fds)
	l.waiting.Lock()
	defer l.waiting.Unlock()
	switch {
	case l.want == int(m.id):
		l.want = -1
		m.body = slices.Clone(m.body)
		l.replies <- m
		return nil
	case l.late[m.id]:
		delete(l.late, m.id)
		return nil
	}
	return violation("reply %d to nothing", m.id)
}
