package datapath

import (
	"fmt"
	"slices"
	"testing"

	"splicenic/regs"
)

// stagePassed makes a bench with a connection with nat in a state of passed connections.
func stagePassed(t *testing.T, row Row) (*bench, *conn) {
	t.Helper()
	b, c := passed(t, modeNAT, func(e *regs.ServiceEntry) {
		if row.State == PassedTemplate {
			e.Persistence, e.PersistenceNetIpv4 = 60_000, 32
		}
	})
	switch row.State {
	case PassedFree:
		c.cack = 1
	case PassedSynRcvd:
		if row.Kind == SYNACK && row.Side == ClientSide || row.Side == ServerSide && (row.Kind == SYN || row.Kind == SYNData) { // a server begins
			set(b.m.Server, 0, regs.ServerWords, &regs.ServerEntry{ControlValid: 1, ControlKind: kindIPv4, ControlProtocol: 6, ControlPort: 8080, Address: words(world4.server)})
			done := b.command(regs.CommandEntry{ControlType: regs.CommandControlTypePass, KeyControlKind: kindIPv4, KeyControlProtocol: 6,
				KeyPortsPort: uint32(c.port), KeyPortsDestination: 80, Value: words(world4.client)[0]})
			if done.ControlStatus != statusOK {
				t.Fatalf("pass: status %d", done.ControlStatus)
			}
			if row.Side == ClientSide {
				one(t, b.push(1, c.server(flagSYN, "", plainOptions...))[0])
				c.cack = c.sseq
			}
			return b, c
		}
		one(t, b.push(0, c.client(flagSYN, "", plainOptions...))[1])
		c.sack = c.cseq
		if row.Side == ClientSide {
			one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[0])
			c.cack = c.sseq
		}
	default:
		c.shake(t, modeNAT)
		one(t, b.push(1, c.server(flagACK, ""))[0])
		c.cack = c.sseq
		if row.State == PassedClosing {
			one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1])
			c.sack = c.cseq
			if row.Kind >= RST && row.Side == ClientSide {
				one(t, b.push(1, c.server(flagACK, ""))[0])
			}
		}
		if row.Kind == RSTInRange || row.Kind == RSTOutOfRange { // bytes on their way
			x := *c
			if row.Side == ClientSide {
				one(t, b.push(0, x.client(flagACK, "12345"))[1])
			} else {
				one(t, b.push(1, x.server(flagACK, "12345"))[0])
			}
		}
		if row.State == PassedQuarantine {
			one(t, b.push(0, c.client(flagRST, ""))[1])
		}
	}
	return b, c
}

// TestPassedStateTable walks the rows of passed connections: each goes on or is dropped as it says, is counted, sends
// nothing of the card's own, and leaves the connection in a state that it names. The kinds of datagrams have tests of
// their own.
func TestPassedStateTable(t *testing.T) {
	walked := 0
	for _, row := range Table() {
		if row.State < PassedFree || row.Kind == Datagram || row.Kind == SYNFIN || row.State == PassedFree && row.Side == ServerSide || row.State == PassedTemplate && row.Side == ServerSide {
			continue
		}
		t.Run(fmt.Sprintf("%s/%d/%s", stateNames[row.State], row.Side, row.Kind), func(t *testing.T) {
			b, c := stagePassed(t, row)
			v := variant{}
			switch row.Kind {
			case SYNData, Data, URG, FINData, NoACK, UnknownOptions:
				v.payload = "payload"
			case KeepAlive:
				v.seq = below
			case ZeroWindowProbe:
				v.payload = "x"
			case RSTInRange:
				v.seq = 2
			case RSTOutOfRange:
				v.seq = 1 << 30
			case RST:
				if row.State == PassedSynRcvd && row.Side == ServerSide {
					v.flags = flagRST | flagACK
				}
			}
			if row.Kind == UnknownOptions {
				v.options = unknownOptions
			}
			if row.State == PassedTemplate {
				c.port = 0
			}
			raw := c.build(row.Side, row.Kind, v)
			if row.State != PassedFree {
				if got, closer := b.kindOf(int(row.Side), raw); closer && got != row.Kind {
					t.Skipf("the page calls it %v here", got)
				}
			}
			walked++
			o := b.inject(int(row.Side), raw)
			forwards := row.Verdict != VerdictDrop && row.Verdict != VerdictSloppy && row.Verdict != VerdictException
			if got := o.forwarded == 1; got != forwards || len(o.sent) != 0 {
				t.Errorf("went on %d times, sent %v; the verdict is %v", o.forwarded, o.sent, row.Verdict)
			}
			if row.Verdict == VerdictException != (len(o.given) != 0) || (row.Executor == Host) != (row.Verdict == VerdictException) {
				t.Errorf("the host gets %d; the executor is %v", len(o.given), row.Executor)
			}
			if got := o.before.grown(o.after, row.Counter); got != 1 {
				t.Errorf("%s grew by %d, want 1", row.Counter.Name(), got)
			}
			now := PassedFree
			for n := range b.m.Geometry.Pages {
				w := b.c.page(n)
				if w[regs.PageControl]&regs.PageControlValidMask != 0 && regs.PagePortsClient(w[regs.PagePorts]) == uint32(c.port) {
					now = passedStates[regs.PageControlState(w[regs.PageControl])]
				}
			}
			if row.State == PassedFree && row.Verdict == VerdictSloppy {
				now = PassedFree
			}
			if row.Then&In(now) == 0 {
				t.Errorf("leaves the connection in %s; the row says %#b", stateNames[now], row.Then)
			}
			if !slices.Contains([]Verdict{VerdictException}, row.Verdict) {
				b.check(t)
			}
		})
	}
	if walked < 100 {
		t.Errorf("%d rows walked", walked)
	}
}
