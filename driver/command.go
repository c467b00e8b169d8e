package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"splicenic/driver/device"
	"splicenic/driver/ring"
	"splicenic/regs"
)

// Command gives the card a command and waits for its completion, which it returns even where the card refused; the error
// is then a *CommandError. Sequence number, cookie, phase and the address of data are filled in. After a timeout or the
// end of ctx the command may still be carried out; the next one waits for it first.
func (c *Card) Command(ctx context.Context, cmd *regs.CommandEntry) (regs.CompletionEntry, error) {
	if err := c.acquire(ctx); err != nil {
		return regs.CompletionEntry{}, fmt.Errorf("%s: %w", commandName("type", cmd.ControlType), err)
	}
	defer c.release()
	return c.command(ctx, cmd, nil)
}

// command does Command's work for who has the lock. data goes into the staging buffer, and its address into the command.
func (c *Card) command(ctx context.Context, cmd *regs.CommandEntry, data []byte) (regs.CompletionEntry, error) {
	done, err := c.exchange(ctx, cmd, data)
	var refused *CommandError
	if err != nil && !errors.As(err, &refused) {
		return done, fmt.Errorf("%s: %w", commandName("type", cmd.ControlType), err)
	}
	return done, err
}

func (c *Card) exchange(ctx context.Context, cmd *regs.CommandEntry, data []byte) (done regs.CompletionEntry, err error) {
	if err := c.dataPath(); err != nil {
		return done, err
	}
	w := c.newWaiter(ctx, firstSlice)
	defer w.cancel()
	// The staging buffer and the one place for a bulk command are free only when nothing is in flight.
	if err := c.settle(w); err != nil {
		return done, fmt.Errorf("wait for an earlier command: %w", err)
	}
	if data != nil {
		copy(c.staging.Bytes, data)
		cmd.IovaLo, cmd.IovaHi, cmd.Length = uint32(c.staging.IOVA), uint32(c.staging.IOVA>>32), uint32(len(data))
	}
	c.cookie++
	cmd.Cookie = c.cookie
	var d [1]ring.Descriptor
	cmd.Encode(d[0][:])
	sequence := c.commands.Index()
	if c.commands.Send(d[:]) != 1 {
		return done, ErrRingFull
	}
	c.inFlight++
	c.commands.Commit()
	done, err = c.await(w, func(e *regs.CompletionEntry) bool {
		if e != nil && (e.Sequence != sequence || e.Cookie != cmd.Cookie) {
			c.stats.lateCompletions.Add(1)
			return false
		}
		return e != nil
	})
	if err != nil {
		return done, err
	}
	if done.VerbVerb != cmd.ControlType {
		return done, fmt.Errorf("completion is for verb %d: %w", done.VerbVerb, ErrFault)
	}
	if done.ControlStatus != regs.StatusOk {
		return done, &CommandError{Verb: cmd.ControlType, Status: done.ControlStatus}
	}
	return done, nil
}

// settle waits until no command is in flight.
func (c *Card) settle(w *waiter) error {
	_, err := c.await(w, func(e *regs.CompletionEntry) bool {
		if e != nil {
			c.stats.lateCompletions.Add(1)
		}
		return c.inFlight == 0
	})
	return err
}

// await takes completions until one is the wanted one, or until wanted is content without. It is asked with nil first.
func (c *Card) await(w *waiter, wanted func(*regs.CompletionEntry) bool) (e regs.CompletionEntry, err error) {
	if wanted(nil) {
		return e, nil
	}
	var d [1]ring.Descriptor
	for silent := false; ; {
		for c.completions.Recv(d[:]) == 1 {
			e.Decode(d[0][:])
			c.completions.Commit()
			if c.inFlight > 0 {
				c.inFlight--
			}
			if silent {
				c.stats.lostInterrupts.Add(1)
				silent = false
			}
			if wanted(&e) {
				return e, nil
			}
		}
		if silent, err = w.completion(); err != nil {
			return regs.CompletionEntry{}, err
		}
	}
}

// A Handle names a connection: address n and the generation of its page, so that a late command cannot hit another.
type Handle uint32

// NewHandle puts a handle together.
func NewHandle(n, generation uint32) Handle {
	return Handle(regs.SetCommandHandleGeneration(regs.SetCommandHandleN(0, n), generation))
}

// N returns the address.
func (h Handle) N() uint32 { return regs.CommandHandleN(uint32(h)) }

// Generation returns the generation of the page.
func (h Handle) Generation() uint32 { return regs.CommandHandleGeneration(uint32(h)) }

// String returns n and generation.
func (h Handle) String() string { return fmt.Sprintf("%d.%d", h.N(), h.Generation()) }

func (h Handle) command(verb uint32) regs.CommandEntry {
	return regs.CommandEntry{ControlType: verb, HandleN: h.N(), HandleGeneration: h.Generation()}
}

// Allocate takes an address from the list.
func (c *Card) Allocate(ctx context.Context) (Handle, error) {
	done, err := c.Command(ctx, &regs.CommandEntry{ControlType: regs.CommandControlTypeAllocate})
	if err != nil {
		return 0, err
	}
	return NewHandle(done.HandleN, done.HandleGeneration), nil
}

// ArmAndSend arms a leg set of a page and sends the frame that completes its server's handshake, in one command: no byte
// of the server can come between.
func (c *Card) ArmAndSend(ctx context.Context, h Handle, legB bool, port int, frame []byte) error {
	if len(frame) == 0 || len(frame) > stagingBytes {
		return fmt.Errorf("arm and send %v: %d bytes: %w", h, len(frame), ErrFrameSize)
	}
	if port < 0 || port >= regs.PortInstances {
		return fmt.Errorf("arm and send %v: port %d: %w", h, port, device.ErrRange)
	}
	cmd := h.command(regs.CommandControlTypeArmAndSend)
	cmd.FlagsLegB, cmd.ControlPort = bit(legB), uint32(port)
	return c.do(ctx, &cmd, frame)
}

// ResetConnection ends a connection, with an RST to either side where wanted.
func (c *Card) ResetConnection(ctx context.Context, h Handle, toClient, toServer bool) error {
	cmd := h.command(regs.CommandControlTypeReset)
	cmd.FlagsToClient, cmd.FlagsToServer = bit(toClient), bit(toServer)
	return c.do(ctx, &cmd, nil)
}

// A Connect says where the request of a connection that waits for the host goes, and what the server is sent of it.
type Connect struct {
	Target uint32 // server index; with Group a group index
	Group  bool   // the card picks a server of the group
	Port   uint16 // source port that the server sees; zero: the client's
	// Replace takes the place of the bytes in the head buffer: the whole of what is held, or a head buffer's worth of it,
	// whose rest Feed brings. Nil: the head buffer stays as it is.
	Replace  []byte
	Inserted int32  // with Replace: how many bytes more than the client sent are held
	Rule     uint32 // index of the rule that took the request, plus one; zero: as the page says
	Last     bool   // Boundary is the end of the only request
	Boundary uint32 // a sequence number of the client
}

// Connect offers the request of a connection that waits for the host to a server, whose index it returns. ErrKeyExists says
// that another connection has the port there, device.ErrRange that the server takes no connections or that Replace does
// not make up what is held, ErrNotFound that no server of the group takes connections, ErrState that the connection does
// not wait, that bytes came which nobody took, or that enough servers were tried.
func (c *Card) Connect(ctx context.Context, h Handle, x *Connect) (server uint32, err error) {
	if len(x.Replace) > min(regs.HeadBytes, stagingBytes) {
		return 0, fmt.Errorf("connect %v: %d bytes: %w", h, len(x.Replace), ErrFrameSize)
	}
	cmd := h.command(regs.CommandControlTypeConnect)
	cmd.KeyIndexIndex, cmd.FlagsGroup, cmd.KeyPortsPort = x.Target, bit(x.Group), uint32(x.Port)
	cmd.Bar2Offset, cmd.FlagsLast, cmd.Boundary = x.Rule, bit(x.Last), x.Boundary
	if x.Replace != nil {
		cmd.FlagsReplace, cmd.Value = 1, uint32(x.Inserted)
	}
	if err := c.acquire(ctx); err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer c.release()
	done, err := c.command(ctx, &cmd, x.Replace)
	return done.Result[0], err
}

// TakeHead copies what the head buffer of a connection that waits for the host holds; boundary is the client's next
// sequence number. Unless the buffer keeps its bytes the host gathers the request from then on: the buffer is empty, and
// the client is told to go on. When it has the whole head it takes what came behind it with keep, until Connect finds nothing
// that it does not know of. to has room for a head buffer.
func (c *Card) TakeHead(ctx context.Context, h Handle, keep bool, to []byte) (n int, boundary uint32, err error) {
	cmd := h.command(regs.CommandControlTypeTake)
	cmd.FlagsKeep, cmd.Length = bit(keep), uint32(min(len(to), regs.HeadBytes))
	if err := c.acquire(ctx); err != nil {
		return 0, 0, fmt.Errorf("take: %w", err)
	}
	defer c.release()
	done, err := c.fetch(ctx, &cmd, nil)
	if err != nil {
		return 0, 0, err
	}
	if done.Length > cmd.Length {
		return 0, 0, fmt.Errorf("take %v: %d bytes: %w", h, done.Length, ErrFault)
	}
	return copy(to, c.staging.Bytes[:done.Length]), done.Result[0], nil
}

// Feed gives the next part of what the server is owed, after the card asked for it: a head buffer's worth, or the rest.
// ErrState says that it was not asked for, or is there already.
func (c *Card) Feed(ctx context.Context, h Handle, chunk []byte) error {
	if len(chunk) == 0 || len(chunk) > min(regs.HeadBytes, stagingBytes) {
		return fmt.Errorf("feed %v: %d bytes: %w", h, len(chunk), ErrFrameSize)
	}
	cmd := h.command(regs.CommandControlTypeFeed)
	return c.do(ctx, &cmd, chunk)
}

// Reply answers a connection in WAIT_HEAD in a server's place and closes it. The answer fits in a head buffer.
func (c *Card) Reply(ctx context.Context, h Handle, answer []byte) error {
	if len(answer) == 0 || len(answer) > min(regs.HeadBytes, stagingBytes) {
		return fmt.Errorf("reply %v: %d bytes: %w", h, len(answer), ErrFrameSize)
	}
	cmd := h.command(regs.CommandControlTypeReply)
	return c.do(ctx, &cmd, answer)
}

// Protocols that are passed on.
const (
	protocolTCP = 6
	protocolUDP = 17
)

// A Pass says which connection of an application the host expects beside one that is there.
type Pass struct {
	UDP     bool
	Client  netip.AddrPort // the port is not looked at with Template
	VIP     uint32         // VIP index
	VIPPort uint16         // port of the VIP that the client knows
	VLAN    uint16         // of the client's frames; zero: untagged
	Service uint32         // service index
	Server  uint32         // server index; of one for every port, where its port is to be VIPPort
	Port    uint16         // source port that the server sees; zero: the client's
	// Template: the client begins, from a port nobody knows yet. Connections of its to VIPPort go to the server for as long
	// as a client may take to send its head.
	Template bool
	// FromServer: the server begins. The way to the client is that of connection Beside, and so is the local address that
	// the server sees, where it has one; then Port is a port there that no list of the card's has.
	FromServer bool
	Beside     Handle
	Module     bool // payload goes by way of the host
}

// Pass opens a connection for the host before its first segment, or makes a template of it. ErrKeyExists says that there is
// one, ErrStaleHandle that Beside is gone, device.ErrRange that the server takes no connections or an index is none.
func (c *Card) Pass(ctx context.Context, x *Pass) (Handle, error) {
	kind, words := AddressWords(x.Client.Addr())
	cmd := x.Beside.command(regs.CommandControlTypePass)
	cmd.FlagsTemplate, cmd.FlagsFromServer, cmd.FlagsModule = bit(x.Template), bit(x.FromServer), bit(x.Module)
	cmd.Bar2Offset, cmd.Boundary = x.Server&0xffff|uint32(x.Port)<<16, x.Service&0xffff|uint32(x.VIPPort)<<16
	cmd.KeyControlValid, cmd.KeyControlKind, cmd.KeyControlProtocol, cmd.KeyControlVlan = 1, kind, protocolTCP, uint32(x.VLAN)
	if x.UDP {
		cmd.KeyControlProtocol = protocolUDP
	}
	cmd.KeyPortsPort, cmd.KeyPortsDestination, cmd.KeyIndexIndex = uint32(x.Client.Port()), uint32(x.VIPPort), x.VIP
	cmd.Value = words[0]
	var data []byte
	if kind == regs.KindIpv6 {
		for _, w := range words {
			data = binary.LittleEndian.AppendUint32(data, w)
		}
	}
	if err := c.acquire(ctx); err != nil {
		return 0, fmt.Errorf("pass: %w", err)
	}
	defer c.release()
	done, err := c.command(ctx, &cmd, data)
	if err != nil {
		return 0, err
	}
	return NewHandle(done.HandleN, done.HandleGeneration), nil
}

// Adjust makes a stream of a connection whose payload goes by way of the host longer by a number of bytes, or shorter where
// it is negative: that of the client, or of the server. boundary is the sequence number behind what is altered, in the
// client's numbers as they were without adjustments. ErrState says that the receiver does not have all before the last
// adjustment yet, or that the connection is none like that; device.ErrRange that it has what lies before boundary.
func (c *Card) Adjust(ctx context.Context, h Handle, server bool, boundary uint32, bytes int32) error {
	cmd := h.command(regs.CommandControlTypeAdjust)
	cmd.FlagsServerStream, cmd.Boundary, cmd.Value = bit(server), boundary, uint32(bytes)
	return c.do(ctx, &cmd, nil)
}

// Free gives a page back without telling anyone.
func (c *Card) Free(ctx context.Context, h Handle) error {
	cmd := h.command(regs.CommandControlTypeFree)
	return c.do(ctx, &cmd, nil)
}

// do gives a command whose completion says no more than its status.
func (c *Card) do(ctx context.Context, cmd *regs.CommandEntry, data []byte) error {
	if err := c.acquire(ctx); err != nil {
		return fmt.Errorf("%s: %w", commandName("type", cmd.ControlType), err)
	}
	defer c.release()
	_, err := c.command(ctx, cmd, data)
	return err
}
