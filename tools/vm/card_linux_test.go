package vm

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/emu/port"
)

// serve serves an emulated card with these ports until the test ends, and returns its socket. The context it returns ends
// when the card's server does.
func serve(ctx context.Context, t *testing.T, name string, ports [2]port.Port) (context.Context, string) {
	t.Helper()
	card, err := emu.New(emu.Config{Client: ports[0], Server: ports[1], Seed: 1, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(lab.dir, fmt.Sprintf("%s.sock", name))
	s, err := vfiouser.Listen(socket, card, vfiouser.Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		card.Close()
		t.Fatal(err)
	}
	serving, end := context.WithCancel(context.Background())
	ctx, ended := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() { ended(fmt.Errorf("card %s: %w", name, card.Run(serving))) })
	group.Go(func() { ended(fmt.Errorf("server of card %s: %w", name, s.Serve(serving))) })
	t.Cleanup(func() {
		end()
		group.Wait()
		card.Close()
	})
	return ctx, socket
}

// serveProcess is serve for a card between the network's client and servers, in a process of its own.
func (n *network) serveProcess(ctx context.Context, name string) (context.Context, string) {
	t := n.t
	t.Helper()
	socket := filepath.Join(lab.dir, name+".sock")
	c := n.card.Command(context.Background(), lab.splicectl, "card", "serve", "--card", "emu", "--socket", socket, "--client", "eth1", "--server", "eth2", "--seed", "1")
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	ctx, ended := context.WithCancelCause(ctx)
	exited := make(chan struct{})
	word, err := bufio.NewReader(out).ReadString('\n') // when clients may come
	go func() {
		defer close(exited)
		ended(fmt.Errorf("card process %s: %w", name, c.Wait()))
	}()
	t.Cleanup(func() {
		must(t, c.Process.Signal(syscall.SIGTERM))
		<-exited
		if !c.ProcessState.Success() {
			t.Errorf("card process %s: %v", name, c.ProcessState)
		}
	})
	must(t, err)
	t.Log(strings.TrimSpace(word))
	return ctx, socket
}

// unwired are two ports that lead nowhere.
func unwired(i byte) (ports [2]port.Port) {
	for side := range ports {
		ports[side], _ = port.Pair(port.MemConfig{MACs: [2][6]byte{{2, 0, 0, 0, i, byte(side + 1)}, {2, 0, 0, 0, i, byte(side + 11)}}})
	}
	return ports
}
