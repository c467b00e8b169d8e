package netlab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"
)

// A Cmd is an exec.Cmd that starts inside a namespace, in a process group of its own. The whole group is killed when
// the context ends or the lab closes; the command itself is told to end when this process dies.
type Cmd struct {
	*exec.Cmd
	namespace *Namespace
}

// Command prepares a command as exec.CommandContext does.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *Cmd {
	c := &Cmd{exec.CommandContext(ctx, name, args...), n}
	c.SysProcAttr = groupAttr()
	c.Cancel = c.kill
	c.WaitDelay = 5 * time.Second // for pipes that a grandchild holds open
	return c
}

// kill ends the command and what it has started.
func (c *Cmd) kill() error {
	if c.Process == nil {
		return nil
	}
	return killGroup(c.Process)
}

// Start starts the command inside the namespace. Wait must follow.
func (c *Cmd) Start() error {
	l := c.namespace.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("start %s in %s: %w", c.Path, c.namespace.name, errClosed)
	}
	result := make(chan error, 1)
	l.starts <- func() { result <- c.namespace.Do(c.Cmd.Start) }
	if err := <-result; err != nil {
		return fmt.Errorf("start %s in %s: %w", c.Path, c.namespace.name, err)
	}
	l.running[c] = struct{}{}
	return nil
}

// Wait waits for the command to end.
func (c *Cmd) Wait() error {
	err := c.Cmd.Wait()
	l := c.namespace.lab
	l.mu.Lock()
	delete(l.running, c)
	l.mu.Unlock()
	return err
}

// Run starts the command and waits for its end.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard error together.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}
