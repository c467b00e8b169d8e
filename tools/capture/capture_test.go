package capture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splicenic/regs"
	"splicenic/runtime/view"
)

// captures are a connection's: its page, and both wires from its SYN to the last acknowledgement.
const captures = "../splicectl/testdata/capture"

func savedPage(t *testing.T) regs.PageEntry {
	t.Helper()
	var p view.Page
	b, err := os.ReadFile(filepath.Join(captures, "page.json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Decode()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// spoilt is a capture with a field of one frame changed: n counts frames from one, off bytes from the TCP header.
func spoilt(t *testing.T, name string, n, off int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(captures, name))
	if err != nil {
		t.Fatal(err)
	}
	at := 24
	for range n - 1 {
		at += 16 + int(b[at+8]) + int(b[at+9])<<8
	}
	b[at+16+14+20+off] ^= 1
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTrace(t *testing.T) {
	client, server := filepath.Join(captures, "client.pcap"), filepath.Join(captures, "server.pcap")
	const whole = "client 4 kept by the card until the server has it\nserver 3 held bytes, sent by the card\nserver 4 became 7\nserver 5 became 8\nclient 9 became 6\nserver 7 became 11\nclient 10 became 8\nclient 12 became 10\nserver 9 became 13\n"
	for _, row := range []struct {
		name           string
		client, server string
		change         func(*regs.PageEntry)
		want           string // segments that carry bytes or became others, in order
		differs        string // fields that do not fit
	}{
		{"as it was", client, server, nil, whole, ""},
		{"a window that was not kept", client, spoilt(t, "server.pcap", 6, 15), nil, whole, "client 9 tcp.window"},
		{"another shift", client, server, func(p *regs.PageEntry) { p.AScaleClient = 31 }, whole, "client 9 tcp.window\nclient 10 tcp.window\nclient 12 tcp.window"},
		{"another delta", client, server, func(p *regs.PageEntry) { p.ADeltaServer++ }, "client 4 kept by the card until the server has it\nserver 3 held bytes, sent by the card\n", ""},
		{"another client", client, server, func(p *regs.PageEntry) { p.ClientAddress[0]++ }, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := savedPage(t)
			if row.change != nil {
				row.change(&p)
			}
			list, err := Trace(row.client, row.server, &p)
			if err != nil {
				t.Fatal(err)
			}
			var got, differs string
			for _, s := range list {
				switch {
				case s.Became != nil:
					got += fmt.Sprintf("%s %d became %d\n", s.Wire, s.Frame, s.Became.Frame)
					for _, f := range s.Became.Fields {
						if !f.Fits {
							differs += fmt.Sprintf("%s %d %s\n", s.Wire, s.Frame, f.Name)
						}
					}
				case strings.HasPrefix(s.Note, "kept"), strings.HasPrefix(s.Note, "held"):
					got += fmt.Sprintf("%s %d %s\n", s.Wire, s.Frame, s.Note)
				}
			}
			if got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
			if strings.TrimSpace(differs) != row.differs {
				t.Errorf("fields that differ:\n%swant\n%s", differs, row.differs)
			}
			var text bytes.Buffer
			TraceText(&text, list)
			if strings.Contains(text.String(), "DIFFERS") != (row.differs != "") {
				t.Errorf("text:\n%s", &text)
			}
		})
	}
}

func TestTraceErrors(t *testing.T) {
	p := savedPage(t)
	client := filepath.Join(captures, "client.pcap")
	for _, row := range []struct{ client, server, want string }{
		{client, filepath.Join(t.TempDir(), "none"), "no such file"},
		{filepath.Join(captures, "page.json"), client, "neither pcap nor pcapng"},
	} {
		if _, err := Trace(row.client, row.server, &p); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.client, err, row.want)
		}
	}
}

func TestCheck(t *testing.T) {
	client, server := filepath.Join(captures, "client.pcap"), filepath.Join(captures, "server.pcap")
	for _, row := range []struct {
		name           string
		client, server string
		cfg            Config
		spliced        uint64
		found          int
		kind           string
	}{
		{"as it was", client, server, Config{}, 1, 0, ""},
		{"another listener", client, server, Config{Listeners: []netip.AddrPort{netip.MustParseAddrPort("198.18.0.81:80")}}, 0, 0, ""},
		{"the wrong way round", server, client, Config{}, 0, 1, "promise"},
		{"the first segment of the card damaged", client, spoilt(t, "server.pcap", 3, 22), Config{}, 0, 3, "connection"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := Check(row.client, row.server, row.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.Summary.Spliced != row.spliced || len(r.Violations) < row.found || (len(r.Violations) == 0) != (row.found == 0) || row.kind != "" && r.Violations[0].Kind != row.kind {
				t.Errorf("%+v", r)
			}
		})
	}
	r, err := Check(server, client, Config{Most: 1})
	if err != nil || len(r.Violations) > 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzTrace: frames that are none, or not all there.
func FuzzTrace(f *testing.F) {
	for _, name := range []string{"client.pcap", "server.pcap"} {
		b, err := os.ReadFile(filepath.Join(captures, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[24+16:][:60])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d decoded
		if d.decode(b) && d.length < 0 {
			t.Errorf("%+v", d)
		}
	})
}
