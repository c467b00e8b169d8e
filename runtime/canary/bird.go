package canary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/inet"
)

const (
	client = regs.PortClient
	server = regs.PortServer

	clientPort = 40_000
	// The numbers of both ends wrap around within the connection.
	clientISN = 0xffff_fff0
	serverISN = 0xffff_ffc0
)

var (
	request  = []byte("GET " + path + " HTTP/1.1\r\nHost: canary.invalid\r\n\r\n")
	response = []byte("HTTP/1.1 200 OK\r\nContent-Length: 81\r\n\r\n" +
		"The bytes of this answer have to arrive as they are, an odd number of them, too.\n")
)

// A bird is one connection, driven from both ends.
type bird struct {
	ctx context.Context
	c   *driver.Card
	cfg Config
	*family

	step   string
	cookie uint32 // of the frame that was put in last
	frames int    // that went in and came out
	isn    uint32 // a0: of the card toward the client
	es     [8]driver.Exception
}

// delta is a = a0 − a1.
func (b *bird) delta() uint32 { return b.isn - serverISN }

// A given is a segment that the card gave back.
type given struct {
	port int
	segment
}

// ends of the connection as the two wires know them.
func (b *bird) clientEnd() netip.AddrPort { return netip.AddrPortFrom(b.client, clientPort) }
func (b *bird) vipEnd() netip.AddrPort    { return netip.AddrPortFrom(b.vip, vipPort) }
func (b *bird) serverEnd() netip.AddrPort { return netip.AddrPortFrom(b.server, serverPort) }

// fly takes the connection from its SYN to its last ACK.
func (b *bird) fly() error {
	requestEnd := uint32(clientISN) + 1 + uint32(len(request))
	answerEnd := uint32(serverISN) + 1 + uint32(len(response)) // in the server's numbers
	fromClient := segment{from: b.clientEnd(), to: b.vipEnd(), seq: clientISN, flags: syn, mss: b.mss}
	fromServer := segment{from: b.serverEnd(), to: b.clientEnd(), seq: serverISN, ack: clientISN + 1, flags: syn | ack, mss: b.mss}

	b.step = "SYN of the client"
	got, err := b.ask(client, fromClient, client, "a SYN-ACK of the service")
	if err != nil {
		return err
	}
	b.isn = got.seq // any number is good
	if err := b.is(got, segment{from: b.vipEnd(), to: b.clientEnd(), seq: b.isn, ack: clientISN + 1, flags: syn | ack}); err != nil {
		return err
	}

	b.step = "request of the client"
	fromClient.flags, fromClient.mss, fromClient.seq, fromClient.ack = ack, 0, clientISN+1, b.isn+1
	if err := b.put(client, fromClient); err != nil {
		return err
	}
	fromClient.flags, fromClient.payload = ack|psh, request
	got, err = b.ask(client, fromClient, server, "a SYN to the server")
	if err != nil {
		return err
	}
	if err := b.is(got, segment{from: b.clientEnd(), to: b.serverEnd(), seq: clientISN, flags: syn}); err != nil {
		return err
	}

	b.step = "SYN-ACK of the server"
	got, err = b.askStream(server, fromServer, server, "an ACK and the request", len(request))
	if err != nil {
		return err
	}
	if err := b.is(got, segment{from: b.clientEnd(), to: b.serverEnd(), seq: clientISN + 1, ack: serverISN + 1, flags: ack, payload: request}); err != nil {
		return err
	}

	b.step = "response of the server"
	fromServer.flags, fromServer.mss, fromServer.seq, fromServer.ack, fromServer.payload = ack|psh, 0, serverISN+1, requestEnd, response
	if err := b.passes(server, fromServer, segment{from: b.vipEnd(), to: b.clientEnd(), seq: serverISN + 1 + b.delta(), ack: requestEnd, flags: ack, payload: response}); err != nil {
		return err
	}

	b.step = "acknowledgement of the client"
	fromClient.flags, fromClient.seq, fromClient.ack, fromClient.payload = ack, requestEnd, answerEnd+b.delta(), nil
	if err := b.passes(client, fromClient, segment{from: b.clientEnd(), to: b.serverEnd(), seq: requestEnd, ack: answerEnd, flags: ack}); err != nil {
		return err
	}

	b.step = "FIN of the client"
	fromClient.flags = fin | ack
	if err := b.passes(client, fromClient, segment{from: b.clientEnd(), to: b.serverEnd(), seq: requestEnd, ack: answerEnd, flags: fin | ack}); err != nil {
		return err
	}

	b.step = "FIN of the server"
	fromServer.flags, fromServer.seq, fromServer.ack, fromServer.payload = fin|ack, answerEnd, requestEnd+1, nil
	if err := b.passes(server, fromServer, segment{from: b.vipEnd(), to: b.clientEnd(), seq: answerEnd + b.delta(), ack: requestEnd + 1, flags: fin | ack}); err != nil {
		return err
	}

	b.step = "last acknowledgement of the client"
	fromClient.flags, fromClient.seq, fromClient.ack = ack, requestEnd+1, answerEnd+1+b.delta()
	return b.passes(client, fromClient, segment{from: b.clientEnd(), to: b.serverEnd(), seq: requestEnd + 1, ack: answerEnd + 1, flags: ack})
}

// home waits until nothing of the connection is left.
func (b *bird) home(free, heads uint32) error {
	b.step = "end of the connection"
	var f, h uint32
	done, err := b.wait(func() (bool, error) {
		f, h = b.c.Load(regs.AmuFree), b.c.Load(regs.HeadFree)
		return f == free && h == heads, b.c.Err()
	})
	if done {
		return nil
	}
	return b.wrong(fmt.Sprintf("%d free pages and %d free head buffers again", free, heads), fmt.Sprintf("%d and %d", f, h), err)
}

// passes puts a translated segment in and compares what comes out on the other side: one hop less, and all else as said.
func (b *bird) passes(port int, s, want segment) error {
	got, err := b.ask(port, s, 1-port, want.String())
	if err != nil {
		return err
	}
	if got.hops != inet.Hops-1 {
		return b.wrong(fmt.Sprintf("%d hops left", inet.Hops-1), fmt.Sprint(got.hops), nil)
	}
	return b.is(got, want)
}

// is compares a segment with what it has to be; PSH is as the card likes it.
func (b *bird) is(got given, want segment) error {
	g := got.segment
	g.flags &^= psh
	same := g.from == want.from && g.to == want.to && g.seq == want.seq && (g.ack == want.ack || want.flags&ack == 0) && g.flags == want.flags
	if !same {
		return b.wrong(want.String(), got.String(), nil)
	}
	if !bytes.Equal(g.payload, want.payload) {
		return b.wrong(fmt.Sprintf("the payload %q", want.payload), fmt.Sprintf("%q", g.payload), nil)
	}
	return nil
}

// put gives the card a frame as if it had come to a port; what it would send comes back.
func (b *bird) put(port int, s segment) error {
	lo, hi := b.c.Load(regs.PortMacLo.At(port, regs.PortStride)), b.c.Load(regs.PortMacHi.At(port, regs.PortStride))
	b.cookie++
	b.frames++
	if err := b.c.ReinjectBack(port, s.frame(driver.MAC(lo, hi), b.etherType), b.cookie); err != nil {
		return b.wrong("the frame to be taken", "an error", err)
	}
	b.c.Flush()
	return nil
}

// ask puts a segment in and waits for the first that comes back to a port.
func (b *bird) ask(port int, s segment, to int, want string) (given, error) {
	return b.askStream(port, s, to, want, 0)
}

// askStream puts a segment in and waits until so many bytes of payload have come back to a port, in segments one behind
// the other; they come as one. The other port may only see bare acknowledgements.
func (b *bird) askStream(port int, s segment, to int, want string, bytes int) (sum given, err error) {
	if err := b.put(port, s); err != nil {
		return sum, err
	}
	first := true
	done, err := b.wait(func() (bool, error) {
		n := b.c.Exceptions(b.es[:1])
		if n == 0 {
			return false, b.c.Err()
		}
		g, stale, err := b.given(&b.es[0])
		b.c.CommitExceptions()
		switch {
		case err != nil:
			return false, err
		case stale:
			return false, nil
		case g.port != to:
			if g.flags != ack || len(g.payload) != 0 {
				return false, b.wrong(want, g.String()+" on the other side", nil)
			}
			return false, nil
		case first:
			sum, first = g, false
		case g.seq != sum.seq+uint32(len(sum.payload)):
			return false, b.wrong(fmt.Sprintf("a segment at %#08x", sum.seq+uint32(len(sum.payload))), g.String(), nil)
		default:
			sum.payload, sum.flags = append(sum.payload, g.payload...), sum.flags|g.flags
		}
		return len(sum.payload) >= bytes, nil
	})
	var step *StepError
	switch {
	case done, errors.As(err, &step):
		return sum, err
	case first:
		return sum, b.wrong(want, "no answer", err)
	}
	return sum, b.wrong(want, fmt.Sprintf("only %s", sum.String()), err)
}

// given reads what the card gave the host. stale says that it is of an earlier frame, and no news.
func (b *bird) given(e *driver.Exception) (g given, stale bool, err error) {
	if e.ReasonReason != regs.ExceptionReasonReasonFragmented {
		return g, false, b.wrong("the card to act by itself", "the frame as an exception: "+reason(e.ReasonReason), nil)
	}
	if e.Back != b.cookie {
		return g, true, nil
	}
	b.frames++
	s, err := read(e.Frame, b.etherType)
	if err != nil {
		return g, false, b.wrong("a segment that is well", err.Error(), nil)
	}
	return given{int(e.ControlPort), s}, false, nil
}

// reason returns the name of an exception's reason.
func reason(v uint32) string {
	if ft, ok := regs.LookupFormat("exception"); ok {
		if f, ok := ft.Words[regs.ExceptionReason].Field("reason"); ok {
			if name := f.ValueName(v); name != "" {
				return name
			}
		}
	}
	return fmt.Sprint(v)
}

func (b *bird) wrong(want, got string, err error) error {
	return &StepError{Family: b.name, Step: b.step, Want: want, Got: got, Err: err}
}

// wait calls f until it is done or fails. A card that is gone is noticed at the end at the latest: nobody but a Load sees
// that it is.
func (b *bird) wait(f func() (bool, error)) (bool, error) {
	ctx := b.ctx
	if b.cfg.Pump == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.cfg.Timeout, driver.ErrTimeout)
		defer cancel()
	}
	pause := 50 * time.Microsecond
	for turn := 0; ; turn++ {
		done, err := f()
		if done || err != nil {
			return done, err
		}
		if ctx.Err() != nil || turn == pumpLimit && b.cfg.Pump != nil {
			b.c.Load(regs.ControlStatus)
			if lost := b.c.Err(); lost != nil {
				return false, lost
			}
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			return false, driver.ErrTimeout
		}
		if b.cfg.Pump != nil {
			b.cfg.Pump()
			continue
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		pause = min(2*pause, 5*time.Millisecond)
	}
}
