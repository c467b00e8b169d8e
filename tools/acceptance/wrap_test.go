package acceptance

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// block is what a long stream repeats. Its length is prime, so no shift by a power of two goes unseen.
type block []byte

const blockBytes = 1_048_573

func newBlock(seed string) block {
	b := make(block, blockBytes)
	rand.NewChaCha8(sha256.Sum256([]byte(seed))).Read(b) // never fails
	return b
}

// send writes n bytes of the stream.
func (b block) send(w io.Writer, n int64) error {
	for n > 0 {
		part := b[:min(n, int64(len(b)))]
		if _, err := w.Write(part); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}

// receive reads to the end and compares every byte; n is how many there must be.
func (b block) receive(r io.Reader, n int64) error {
	in := make([]byte, 1<<18)
	for at := int64(0); ; {
		k, err := r.Read(in)
		for got := in[:k]; len(got) > 0; {
			place := at % int64(len(b))
			want := b[place:min(place+int64(len(got)), int64(len(b)))]
			if !bytes.Equal(got[:len(want)], want) {
				return fmt.Errorf("wrong bytes between %d and %d", at, at+int64(len(want)))
			}
			at, got = at+int64(len(want)), got[len(want):]
		}
		switch {
		case err == io.EOF && at == n:
			return nil
		case err == io.EOF:
			return fmt.Errorf("%d bytes, want %d", at, n)
		case err != nil:
			return fmt.Errorf("after %d bytes: %w", at, err)
		}
	}
}

func TestBlock(t *testing.T) {
	const n = 3*blockBytes + 17
	b := newBlock("a")
	var all bytes.Buffer
	must(t, b.send(&all, n))
	must(t, b.receive(bytes.NewReader(all.Bytes()), n))
	wrong := bytes.Clone(all.Bytes())
	wrong[2*blockBytes+1]++
	for name, r := range map[string][]byte{"one byte wrong": wrong, "short": all.Bytes()[:n-1], "a hole": append(bytes.Clone(all.Bytes()[:100]), all.Bytes()[101:]...)} {
		if b.receive(bytes.NewReader(r), int64(len(r))) == nil && (name != "short" || b.receive(bytes.NewReader(r), n) == nil) {
			t.Errorf("%s: not seen", name)
		}
	}
}

// TestWrap moves 5 GiB each way through one splice, at once, so that every number of it passes 2^32.
func TestWrap(t *testing.T) {
	if !long {
		t.Skip("10 GiB take half a minute; SPLICE_LONG=1 runs it")
	}
	const each = 5 << 30
	p := start(t, configuration)
	up, down := newBlock("up"), newBlock("down")
	ln, err := p.servers.Listen("tcp", "198.18.1.11:80")
	must(t, err)
	defer ln.Close()
	const head = "GET /wrap HTTP/1.1\r\nHost: www.example\r\n\r\n"
	// Both ends send what, behind a number of bytes to leave out, the other compares.
	both := func(c net.Conn, send, receive block, skip int64) error {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(8 * time.Minute))
		sent := make(chan error, 1)
		go func() { sent <- errors.Join(send.send(c, each), c.(*net.TCPConn).CloseWrite()) }()
		_, err := io.CopyN(io.Discard, c, skip)
		return errors.Join(err, receive.receive(c, each), <-sent)
	}
	served := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			err = both(c, down, up, int64(len(head)))
		}
		served <- err
	}()
	c, err := p.client.Dial(t.Context(), "tcp", "198.18.0.80:80")
	must(t, err)
	begin := time.Now()
	_, err = c.Write([]byte(head))
	must(t, err)
	if err := errors.Join(both(c, up, down, 0), <-served); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	t.Logf("%d MiB each way in %v, %.0f MiB/s", each>>20, took.Round(time.Millisecond), 2*each/took.Seconds()/(1<<20))
	p.atRest()
}
