package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"splicenic/emu/port"
	"splicenic/tools/netlab"
	"splicenic/tools/netlab/httpserver"
)

const (
	workers        = 4
	requestTimeout = 10 * time.Second
	settleTimeout  = 5 * time.Second
)

// Run carries n requests between network namespaces: client ── card ── servers. live shows the requests as they end; nil:
// not at all. Where namespaces are not allowed the error is netlab.ErrNotPermitted, and nothing has happened yet; see
// netlab.Enter for how an ordinary user gets there.
func Run(ctx context.Context, n int, live io.Writer) (*Report, error) {
	if err := checkRequests(n); err != nil {
		return nil, err
	}
	lab, err := netlab.New()
	if err != nil {
		return nil, err
	}
	k := &kernelNet{lab: lab}
	r := &Report{Mode: "namespaces"}
	err = k.build()
	if err == nil {
		err = k.run(ctx, n, r, live)
	}
	return r, errors.Join(err, k.close())
}

// kernelNet is three namespaces in a row, the card in the middle.
type kernelNet struct {
	lab                   *netlab.Lab
	client, card, servers *netlab.Namespace
	stack                 *stack
	group                 sync.WaitGroup
	stop                  context.CancelFunc
	broken                chan error // a goroutine of the group has ended before its time
}

func (k *kernelNet) build() error {
	k.broken = make(chan error, len(servers)*2+2)
	for _, ns := range []struct {
		to   **netlab.Namespace
		name string
	}{{&k.client, "client"}, {&k.card, "card"}, {&k.servers, "servers"}} {
		var err error
		if *ns.to, err = k.lab.Namespace(ns.name); err != nil {
			return err
		}
	}
	steps := []func() error{
		func() error { return k.lab.Link(k.client, "eth0", k.card, "eth1") },
		func() error { return k.lab.Link(k.card, "eth2", k.servers, "eth0") },
	}
	for _, p := range clientPrefixes {
		steps = append(steps, func() error { return k.client.Addr("eth0", p.String()) })
	}
	for _, s := range servers {
		for _, p := range s.prefixes {
			steps = append(steps, func() error { return k.servers.Addr("eth0", p.String()) })
		}
	}
	for _, g := range serverGateways {
		steps = append(steps, func() error { return k.servers.Route("default", g.String()) })
	}
	var ports [2]port.Port
	steps = append(steps, func() error {
		return k.card.Do(func() (err error) {
			for i, name := range []string{"eth1", "eth2"} {
				if ports[i], err = port.Open(name); err != nil {
					return err
				}
			}
			return nil
		})
	}, func() (err error) {
		k.stack, err = newStack(ports)
		return err
	})
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// run starts card, runtime and servers, and sends the requests.
func (k *kernelNet) run(ctx context.Context, n int, r *Report, live io.Writer) error {
	running, stop := context.WithCancel(ctx)
	k.stop = stop
	k.start(func() error { return k.stack.card.Run(running) })
	for _, s := range servers {
		for _, p := range s.prefixes {
			ln, err := k.servers.Listen("tcp", netip.AddrPortFrom(p.Addr(), 80).String())
			if err != nil {
				return err
			}
			k.start(func() error { return httpserver.Serve(running, ln, s.name) })
		}
	}
	if err := k.stack.start(ctx, [2]string{"eth1", "eth2"}, nil); err != nil {
		return err
	}
	k.start(func() error { return k.stack.daemon.Run(running) })
	if err := k.await(ctx, "the servers' MAC addresses are resolved", func() (bool, error) { return k.stack.resolved(ctx) }); err != nil {
		return err
	}
	b := newBoard(live, r)
	begin := time.Now()
	if err := k.requests(ctx, plan(n), b); err != nil {
		return err
	}
	b.end(time.Since(begin))
	// Closed connections rest in quarantine for a second before their pages are free again.
	if err := k.await(ctx, "all pages are free again", func() (bool, error) { return k.stack.atRest(), nil }); err != nil {
		return err
	}
	return k.stack.read(ctx, r)
}

// start runs a goroutine that must not end before stop.
func (k *kernelNet) start(f func() error) {
	k.group.Go(func() {
		if err := f(); err != nil && !errors.Is(err, context.Canceled) {
			k.broken <- err
		}
	})
}

// await looks every few milliseconds until something holds.
func (k *kernelNet) await(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case err := <-k.broken:
			return err
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// requests sends the plan's requests, a few at a time.
func (k *kernelNet) requests(ctx context.Context, plan []request, b *board) error {
	next := make(chan int)
	var group sync.WaitGroup
	defer group.Wait()
	defer close(next)
	for range workers {
		group.Go(func() {
			for i := range next {
				b.add(k.request(ctx, i, &plan[i]), plan[i].may)
			}
		})
	}
	for i := range plan {
		select {
		case next <- i:
		case err := <-k.broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// request sends one request on a connection of its own.
func (k *kernelNet) request(ctx context.Context, i int, r *request) Outcome {
	o := Outcome{Number: i + 1, Host: r.host, Path: r.path}
	fail := func(err error) Outcome {
		o.Error = err.Error()
		return o
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	begin := time.Now()
	conn, err := k.client.Dial(ctx, "tcp", r.vip.String())
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	client, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return fail(err)
	}
	o.Client = client.String()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, r.head()); err != nil {
		return fail(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fail(err)
	}
	defer res.Body.Close()
	o.Server, o.Error = readAnswer(res)
	o.Ms = float64(time.Since(begin)) / float64(time.Millisecond)
	if o.Error != "" {
		return o
	}
	if o.sight, err = k.stack.see(ctx, client, r.vip); err != nil {
		return fail(err)
	}
	return o
}

// close ends what runs and lets the namespaces go.
func (k *kernelNet) close() error {
	var err error
	if k.stop != nil {
		k.stop()
	}
	k.group.Wait()
	if k.stack != nil {
		err = k.stack.close()
	}
	return errors.Join(err, k.lab.Close())
}
