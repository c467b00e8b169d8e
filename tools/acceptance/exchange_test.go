package acceptance

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
)

// A script is what the two ends of a connection do: the client sends a head and more bytes, the server bytes. Both end
// their stream by FIN and read the other's to its end.
type script struct {
	name           string
	up, down       int64 // bytes behind the head, and bytes from the server
	serverWaits    moment
	clientWaits    moment // before the bytes behind the head
	clientFINWaits moment
}

// A moment is when an end goes on.
type moment uint8

const (
	atOnce   moment = iota // for the server: when it has read the head
	afterAll               // for the server: when it has read as many bytes as the head says
	afterFIN               // when the other's stream has ended
)

// A script's large and small transfers, in bytes.
const (
	much   = 300_000
	little = 2_000
)

var scripts = []script{
	{name: "download", down: much, clientFINWaits: afterFIN},
	{name: "upload", up: much, down: little, serverWaits: afterAll, clientFINWaits: afterFIN},
	{name: "both at once", up: much, down: much},
	{name: "half-close by the client", up: little, down: much, serverWaits: afterFIN},
	{name: "half-close by the server", up: much, down: little, clientWaits: afterFIN},
}

// An exchange is one run of a script. What an end has sent and got is for it to say.
type exchange struct {
	script
	seed         byte
	sent, got    [2]hash.Hash // by the client, by the server
	info         [2]*unix.TCPInfo
	serverResult chan error
}

// exchanges are those the servers know, by number: it stands in the request's path.
type exchanges struct {
	mu      sync.Mutex
	next    int
	pending map[int]*exchange
}

func (xs *exchanges) add(x *exchange) (path string) {
	xs.mu.Lock()
	defer xs.mu.Unlock()
	if xs.pending == nil {
		xs.pending = map[int]*exchange{}
	}
	xs.next++
	xs.pending[xs.next] = x
	return fmt.Sprintf("/exchange/%d", xs.next)
}

// take is the exchange of a head. Each is for one connection.
func (xs *exchanges) take(head string) (*exchange, error) {
	_, rest, _ := strings.Cut(head, " /exchange/")
	number, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	xs.mu.Lock()
	defer xs.mu.Unlock()
	x := xs.pending[n]
	if err != nil || x == nil {
		return nil, fmt.Errorf("a request for no exchange of ours: %q", head)
	}
	delete(xs.pending, n)
	return x, nil
}

// serve answers connections of a listener until it is closed.
func (xs *exchanges) serve(t *testing.T, ln net.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.Errorf("accept at %v: %v", ln.Addr(), err)
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			head, err := readHead(c)
			if err != nil {
				t.Errorf("server at %v, from %v: %v", ln.Addr(), c.RemoteAddr(), err)
				return
			}
			x, err := xs.take(head)
			if err != nil {
				t.Errorf("server at %v, from %v: %v", ln.Addr(), c.RemoteAddr(), err)
				return
			}
			x.serverResult <- x.server(c.(*net.TCPConn), head)
		}()
	}
}

// readHead reads byte by byte, so that none of the body is taken.
func readHead(r io.Reader) (string, error) {
	var head []byte
	for b := [1]byte{}; !strings.HasSuffix(string(head), "\r\n\r\n"); {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", fmt.Errorf("read the head after %d bytes: %w", len(head), err)
		}
		if head = append(head, b[0]); len(head) > 1000 {
			return "", fmt.Errorf("a head of more than %d bytes", len(head))
		}
	}
	return string(head), nil
}

// end is what both ends do with a connection: send and receive at once.
func (x *exchange) end(who string, send, receive func() error) error {
	sent := make(chan error, 1)
	go func() {
		err := send()
		if err != nil {
			err = fmt.Errorf("%s sends: %w", who, err)
		}
		sent <- err
	}()
	err := receive()
	if err != nil {
		err = fmt.Errorf("%s receives: %w", who, err)
	}
	return errors.Join(err, <-sent)
}

const chunk = 32 << 10

// copyHashed copies in large pieces and hashes what went through.
func copyHashed(w io.Writer, r io.Reader, h hash.Hash) error {
	b := make([]byte, chunk)
	for {
		n, err := io.ReadFull(r, b)
		h.Write(b[:n])
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil
		default:
			return err
		}
	}
}

// tcpInfo is what a socket's kernel says about its connection. A multipath socket may say nothing.
func tcpInfo(c *net.TCPConn) (info *unix.TCPInfo) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info
}

// server is the server's end, from behind the head.
func (x *exchange) server(c *net.TCPConn, head string) error {
	x.got[1].Write([]byte(head))
	all, fin := make(chan struct{}), make(chan struct{})
	send := func() error {
		switch x.serverWaits {
		case afterAll:
			<-all
		case afterFIN:
			<-fin
		}
		if err := copyHashed(c, stream(x.seed, x.down), x.sent[1]); err != nil {
			return err
		}
		return c.CloseWrite()
	}
	receive := func() error {
		defer close(fin)
		_, err := io.CopyN(x.got[1], c, x.up)
		close(all)
		if err == nil {
			_, err = io.Copy(x.got[1], c)
		}
		return err
	}
	err := x.end("server", send, receive)
	x.info[1] = tcpInfo(c)
	return err
}

// client is the client's end.
func (x *exchange) client(c *net.TCPConn, head string) error {
	fin := make(chan struct{})
	send := func() error {
		request := io.MultiReader(strings.NewReader(head), stream(x.seed+1, x.up))
		if x.clientWaits == afterFIN {
			if err := copyHashed(c, strings.NewReader(head), x.sent[0]); err != nil {
				return err
			}
			<-fin
			request = stream(x.seed+1, x.up)
		}
		if err := copyHashed(c, request, x.sent[0]); err != nil {
			return err
		}
		if x.clientFINWaits == afterFIN {
			<-fin
		}
		return c.CloseWrite()
	}
	receive := func() error {
		defer close(fin)
		_, err := io.Copy(x.got[0], c)
		return err
	}
	err := x.end("client", send, receive)
	x.info[0] = tcpInfo(c)
	return err
}

// run carries an exchange through the card and says what was wrong with it.
func (xs *exchanges) run(client *netlab.Namespace, how flavour, address string, s script, seed byte) (*exchange, error) {
	x := &exchange{script: s, seed: seed, serverResult: make(chan error, 1)}
	for i := range x.sent {
		x.sent[i], x.got[i] = sha256.New(), sha256.New()
	}
	method := "GET"
	if x.up != 0 {
		method = "POST"
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: www.example\r\nContent-Length: %d\r\n\r\n", method, xs.add(x), x.up)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := dial(ctx, client, how, address)
	if err != nil {
		return x, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	err = x.client(c, head)
	c.Close()
	select {
	case serverErr := <-x.serverResult:
		err = errors.Join(err, serverErr)
	case <-ctx.Done():
		return x, errors.Join(err, errors.New("the server's end does not come to an end"))
	}
	if err != nil {
		return x, err
	}
	for i, who := range []string{"client", "server"} {
		if sent, got := sum(x.sent[i]), sum(x.got[1-i]); sent != got {
			err = errors.Join(err, fmt.Errorf("the %s sent a stream with sha256 %s, the other end got %s", who, sent, got))
		}
	}
	return x, err
}
