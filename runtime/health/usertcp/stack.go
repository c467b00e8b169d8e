package usertcp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	randv2 "math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// mtu is what every path carries (RFC 8200, 5), tunnels on it included: nothing here is large, and nobody has to find out.
const mtu = 1280

// Bounds of what is held.
const (
	ReceiveBytes = 16 << 10 // that a peer sent and nobody read, of a connection
	queued       = 4096     // packets that were not fetched
)

const nic = 1

// A Stack opens connections. Make one with New and end it with Close.
type Stack struct {
	stack *stack.Stack
	link  *channel.Endpoint
	clock clock
	own   map[netip.Addr]bool
	busy  bool // something was delivered or done since the last Step
}

// A Packet is an IP packet with a TCP segment.
type Packet struct {
	From, To netip.AddrPort
	Seq      uint32 // of its first byte
	End      uint32 // of the byte after its last one, SYN and FIN counted
	Data     []byte
}

// New returns a stack without connections. The key makes initial sequence numbers hard to guess.
func New(key [32]byte) (*Stack, error) {
	s := &Stack{link: channel.New(queued, mtu, ""), own: map[netip.Addr]bool{}}
	random := &source{random: randv2.NewChaCha8(sha256.Sum256(append([]byte("user tcp"), key[:]...)))}
	s.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
		Clock:              &s.clock,
		RandSource:         random,
		SecureRNG:          random,
	})
	err := s.stack.CreateNICWithOptions(nic, s.link, stack.NICOptions{})
	size := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: ReceiveBytes, Max: ReceiveBytes}
	if err == nil {
		err = s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &size)
	}
	if moderate := tcpip.TCPModerateReceiveBufferOption(false); err == nil {
		err = s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("start user-space TCP: %v", err)
	}
	s.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return s, nil
}

// Close ends all connections without a word to their peers, and waits for the stack's goroutines.
func (s *Stack) Close() {
	s.stack.Close()
	s.stack.Wait()
	s.link.Close()
}

// source is randomness that many may use.
type source struct {
	mu     sync.Mutex
	random *randv2.ChaCha8
}

func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.Read(p)
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.Uint64()
}

func (s *source) Int63() int64 { return int64(s.Uint64() >> 1) }

func (s *source) Seed(int64) {}

var _ rand.Source64 = (*source)(nil)

// Deliver puts in an IP packet that came for one of the connections. What is wrong with it, checksums included, makes it
// disappear.
func (s *Stack) Deliver(packet []byte) {
	if len(packet) == 0 {
		return
	}
	protocol := ipv4.ProtocolNumber
	if packet[0]>>4 == 6 {
		protocol = ipv6.ProtocolNumber
	}
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(bytes.Clone(packet))})
	s.link.InjectInbound(protocol, p)
	p.DecRef()
	s.busy = true
}

// Step moves the stack's time to now, which does not go back, and appends what is to be sent to list.
func (s *Stack) Step(now time.Duration, list []Packet) []Packet {
	if s.busy {
		s.settle()
	}
	for f := s.clock.due(now); f != nil; f = s.clock.due(now) {
		f()
		s.settle()
	}
	s.busy = false
	from := len(list)
	for p := s.link.Read(); p != nil; p = s.link.Read() {
		if q, ok := read(p.ToView().AsSlice()); ok {
			list = append(list, q)
		}
		p.DecRef()
	}
	slices.SortStableFunc(list[from:], func(a, b Packet) int { return cmp.Compare(a.From.Port(), b.From.Port()) })
	return list
}

// settle waits until the stack's goroutines have worked on everything there is: they pause only without work.
func (s *Stack) settle() {
	tcp := s.stack.TransportProtocolInstance(tcp.ProtocolNumber)
	tcp.Pause()
	tcp.Resume()
}

// Next is when Step has something to do if nothing is delivered.
func (s *Stack) Next() time.Duration { return s.clock.next() }

// read finds out where a packet of ours goes. What is not TCP is what IPv6 says about groups, which nobody asked for.
func read(b []byte) (p Packet, ok bool) {
	var segment header.TCP
	switch ip4, ip6 := header.IPv4(b), header.IPv6(b); {
	case ip4.IsValid(len(b)) && ip4.Protocol() == uint8(tcp.ProtocolNumber):
		segment = header.TCP(ip4.Payload())
		p.From, p.To = endpoint(ip4.SourceAddress(), 0), endpoint(ip4.DestinationAddress(), 0)
	case ip6.IsValid(len(b)) && ip6.NextHeader() == uint8(tcp.ProtocolNumber):
		segment = header.TCP(ip6.Payload())
		p.From, p.To = endpoint(ip6.SourceAddress(), 0), endpoint(ip6.DestinationAddress(), 0)
	default:
		return p, false
	}
	if len(segment) < header.TCPMinimumSize || int(segment.DataOffset()) > len(segment) {
		return p, false
	}
	p.From, p.To = netip.AddrPortFrom(p.From.Addr(), segment.SourcePort()), netip.AddrPortFrom(p.To.Addr(), segment.DestinationPort())
	p.Seq = segment.SequenceNumber()
	p.End = p.Seq + uint32(len(segment.Payload()))
	if segment.Flags()&(header.TCPFlagSyn|header.TCPFlagFin) != 0 {
		p.End++
	}
	p.Data = bytes.Clone(b)
	return p, true
}

func endpoint(a tcpip.Address, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(addr, port)
}

// A State is how far a connection is.
type State uint8

// The states.
const (
	Opening State = iota // a SYN is on its way
	Open
	Ended // refused, reset, timed out or aborted; Err tells
)

// A Conn is a connection. Abort ends it; one that is not aborted lasts.
type Conn struct {
	s  *Stack
	ep tcpip.Endpoint
	wq waiter.Queue
}

// Dial begins to open a connection; the SYN comes out of the next Step. Only one connection may have a local port.
func (s *Stack) Dial(from, to netip.AddrPort) (*Conn, error) {
	number := ipv4.ProtocolNumber
	if from.Addr().Is6() {
		number = ipv6.ProtocolNumber
	}
	if !s.own[from.Addr()] {
		a := tcpip.ProtocolAddress{Protocol: number, AddressWithPrefix: tcpip.AddrFromSlice(from.Addr().AsSlice()).WithPrefix()}
		if err := s.stack.AddProtocolAddress(nic, a, stack.AddressProperties{}); err != nil {
			return nil, fmt.Errorf("open connection from %s: %v", from, err)
		}
		s.own[from.Addr()] = true
	}
	c := &Conn{s: s}
	ep, err := s.stack.NewEndpoint(tcp.ProtocolNumber, number, &c.wq)
	if err != nil {
		return nil, fmt.Errorf("open connection to %s: %v", to, err)
	}
	c.ep = ep
	ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: true}) // Close sends an RST
	ep.SocketOptions().SetDelayOption(false)
	err = ep.Bind(full(from))
	if err == nil {
		err = ep.Connect(full(to))
	}
	s.busy = true
	if _, started := err.(*tcpip.ErrConnectStarted); err != nil && !started {
		ep.Close()
		return nil, fmt.Errorf("open connection from %s to %s: %v", from, to, err)
	}
	return c, nil
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}

// State tells how far the connection is.
func (c *Conn) State() State {
	switch tcp.EndpointState(c.ep.State()) {
	case tcp.StateInitial, tcp.StateBound, tcp.StateConnecting, tcp.StateSynSent, tcp.StateSynRecv:
		return Opening
	case tcp.StateClose, tcp.StateError:
		return Ended
	}
	return Open
}

// The errors of a connection.
var (
	ErrRefused  = errors.New("connection refused")
	ErrReset    = errors.New("connection reset")
	ErrTimedOut = errors.New("connection timed out")
)

// Err says why a connection ended.
func (c *Conn) Err() error { return plain(c.ep.LastError()) }

func plain(err tcpip.Error) error {
	switch err.(type) {
	case nil:
		return nil
	case *tcpip.ErrConnectionRefused:
		return ErrRefused
	case *tcpip.ErrConnectionReset, *tcpip.ErrConnectionAborted, *tcpip.ErrAborted:
		return ErrReset
	case *tcpip.ErrTimeout:
		return ErrTimedOut
	}
	return errors.New(err.String())
}

// Write sends bytes of an open connection. Fewer than all are taken where the peer's window and the buffer are full.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{})
	c.s.busy = true
	if _, full := err.(*tcpip.ErrWouldBlock); full {
		return int(n), nil
	}
	return int(n), plain(err)
}

// Read takes up to len(b) bytes that the peer sent; none and no error where there are none yet, io.EOF after its FIN.
func (c *Conn) Read(b []byte) (int, error) {
	w := tcpip.SliceWriter(b)
	r, err := c.ep.Read(&w, tcpip.ReadOptions{})
	c.s.busy = true
	switch err.(type) {
	case *tcpip.ErrWouldBlock:
		return 0, nil
	case *tcpip.ErrClosedForReceive:
		return 0, io.EOF
	}
	return r.Count, plain(err)
}

// Abort ends the connection, with an RST in the next Step where it is open.
func (c *Conn) Abort() {
	c.ep.Close()
	c.s.busy = true
}
