package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"splicenic/emu/image"
	"splicenic/regs"
	"splicenic/runtime/config"
)

// TestReadme runs what README.md says: its configuration is right, its targets of make exist, and its splicectl commands
// succeed beside a runtime with that configuration, whose wires lead nowhere here.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	yaml, parts, commands := fenced(string(b))
	if yaml == "" || len(commands) < 6 {
		t.Fatalf("found a configuration of %d bytes and the commands %q", len(yaml), commands)
	}
	if _, err := config.Load("README.md", []byte(yaml)); err != nil {
		t.Errorf("the configuration: %v", err)
	}
	wires, _, _ := strings.Cut(yaml, "services:")
	for _, p := range parts {
		if _, err := config.Load("README.md", []byte(wires+p)); err != nil {
			t.Errorf("a part of a configuration: %v", err)
		}
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "splice.sock")
	yaml = regexp.MustCompile(`(?m)^emu:.*$`).ReplaceAllString(yaml, "emu: {client: mem, server: mem}")
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := image.EncodeBit(image.Params{Name: "next", Version: image.Version{2, 0, 0}, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry{Pages: 65536}}, image.Options{}, "2026/01/02", "03:04:05")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "next.bit"), next, 0o600); err != nil { // go run ./tools/emuimage
		t.Fatal(err)
	}
	pc := filepath.Join(dir, "pc")
	if err := makeCard(pc, "0000:65:00.0", "xdma", "7"); err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(name, args...)
		c.Dir, c.Env = dir, append(os.Environ(), "SPLICE_SOCKET="+socket, "SPLICE_CARD=emu")
		return c
	}
	// serve starts what goes on until it is interrupted, and waits for its socket.
	serve := func(line, socket string, c *exec.Cmd) {
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Process.Signal(os.Interrupt)
			if err := c.Wait(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out.Bytes())
			}
		})
		awaitSocket(t, socket)
	}
	var runs, makes, cards int
	for _, line := range commands {
		words := strings.Fields(line)
		switch {
		case words[0] == "make":
			makes++
			c := command("make", append([]string{"-n"}, words[1:]...)...)
			c.Dir = "../.."
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		case strings.HasPrefix(line, "splicectl run "):
			runs++
			serve(line, socket, command(words[0], words[1:]...))
		case strings.HasPrefix(line, "splicectl card serve "):
			serve(line, filepath.Join(dir, "card.sock"), command(words[0], words[1:]...))
		case strings.HasPrefix(line, "splicectl card "):
			cards++
			words = append(words, "--machine", pc)
			fallthrough
		default:
			if out, err := command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		}
	}
	if runs != 1 || makes < 2 || cards < 4 {
		t.Errorf("%d runs, %d targets of make and %d commands about cards among %q", runs, makes, cards, commands)
	}
}

// fenced returns the first YAML block, which is a whole configuration, those after it that leave the wires to the first, with
// a service and a group to be sorry where they have groups only, and the commands of the plain blocks, without what follows
// a #.
func fenced(text string) (yaml string, parts, commands []string) {
	blocks := strings.Split(text, "```")
	for i := 1; i < len(blocks); i += 2 {
		if body, ok := strings.CutPrefix(blocks[i], "yaml\n"); ok {
			switch {
			case yaml == "":
				yaml = body
			case strings.HasPrefix(body, "services:"):
				parts = append(parts, body)
			case strings.HasPrefix(body, "groups:"):
				parts = append(parts, "services: [{name: web, listen: [198.18.0.80:80], default: app}]\n"+body+
					"  - {name: spare, servers: [{address: 198.18.1.99:80}]}\n")
			}
			continue
		}
		for line := range strings.Lines(blocks[i]) {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "splicectl ") || strings.HasPrefix(line, "make ") {
				commands = append(commands, line)
			}
		}
	}
	return yaml, parts, commands
}

func awaitSocket(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nobody answers on %s", path)
		}
	}
}
