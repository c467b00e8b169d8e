package daemon_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/view"
)

// captured writes frames as a pcap file with nanoseconds.
type captured struct {
	b []byte
	n int64
}

func (c *captured) frame(at time.Duration, b []byte) {
	le := binary.LittleEndian
	if c.b == nil {
		c.b = le.AppendUint32(nil, 0xa1b23c4d)
		c.b = append(c.b, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		c.b = le.AppendUint32(c.b, 1<<18)
		c.b = le.AppendUint32(c.b, 1)
	}
	ns := int64(1_700_000_000_000_000_000) + int64(at) + c.n
	c.b = le.AppendUint32(c.b, uint32(ns/1e9))
	c.b = le.AppendUint32(c.b, uint32(ns%1e9))
	c.b = le.AppendUint32(c.b, uint32(len(b)))
	c.b = append(le.AppendUint32(c.b, uint32(len(b))), b...)
}

// capture records both wires from now on, in the order of what happens.
func (r *rig) capture() (wires [2]*captured) {
	order := int64(0)
	for i := range wires {
		c := &captured{}
		wires[i] = c
		r.nets[i].drop = func(_ bool, b []byte) bool {
			order++ // no two frames have the same time
			c.n = order
			c.frame(r.now, b)
			return false
		}
	}
	return wires
}

// TestExplain explains a live connection: every decision, and each field that is rewritten, by the words that say so. What
// its page alone tells is the same. With SPLICE_CAPTURES page and captures are left in that folder, for the tests of the
// command line.
func TestExplain(t *testing.T) {
	r := newRig(t, small)
	slow := r.slowServer()
	c := r.client("198.18.0.10")
	r.apply(edit(t, web, "{address: 198.18.1.11:8080, weight: 3}", "{address: 198.18.1.11:8080, weight: 3, profile: {mss: 1460, sack: true}}", ", {address: 198.18.1.12:8080}", "",
		"{path: /api/*, to: api}", "{path: /api/*, to: app}"))
	r.run(5 * time.Millisecond)
	wires := r.capture()
	conn := c.get("198.18.0.80:80", "www.example", "/api/x")
	r.until("splice", time.Second, func() bool { return slow.conn != nil && len(slow.conn.Bytes()) > 0 })
	slow.conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
	r.until("answer", time.Second, func() bool { return strings.HasSuffix(string(conn.Bytes()), "hello") })
	r.run(50 * time.Millisecond)

	var x view.Explanation
	var page view.Page
	if err := r.d.View(func(v *view.View) error {
		list, err := v.Connections(context.Background(), view.Filter{})
		if err != nil || len(list) != 1 {
			t.Fatalf("%d connections, %v", len(list), err)
		}
		if x, err = v.Explain(context.Background(), list[0].ID); err != nil {
			return err
		}
		for _, id := range []string{"x", "4095", "99999999", list[0].ID + "1"} {
			if _, err := v.Explain(context.Background(), id); err == nil {
				t.Errorf("connection %s was explained", id)
			}
		}
		page, err = v.Page(context.Background(), list[0].N, true)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, d := range x.Decisions {
		said = append(said, d.What+": "+d.Text)
	}
	text := strings.Join(said, "\n")
	for _, want := range []string{
		"syn: " + conn.Local().String() + " opened to 198.18.0.80:80, which is service web; it offered MSS 1460,",
		"promise: the client was promised MSS 536, no window scale, no SACK, no timestamps, no ECN",
		"isn: our sequence numbers toward the client begin at a0 = 0x",
		"head: the server has all of it; its buffer was given back",
		"rule: rule 1 took the request",
		"group: group app",
		"server: 198.18.1.11:8080, which sees the client's address and port ",
		"handshake: the server's sequence numbers begin at a1 = 0x",
		"state: spliced; it ends 7440000 ms after its last segment",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q in\n%s", want, text)
		}
	}
	values := map[string]string{}
	words := func(what string, list []view.Word, inCard bool) {
		for _, w := range list {
			if w.At == "" || w.Name == "" || inCard && w.Value == "" {
				t.Errorf("%s: word %+v", what, w)
			}
			values[w.Name] = w.Value
		}
	}
	for _, d := range x.Decisions {
		words(d.What, d.From, true)
	}
	for _, f := range x.Fields {
		words(f.Field, f.From, true)
	}
	for name, want := range map[string]string{
		"page.client_address": "198.18.0.10", "vip[0].address": "198.18.0.80", "server[0].address": "198.18.1.11", "server[0].control.port": "8080",
		"service[0].control.isn": "keyed", "rule[1].control.valid": "1", "timer.idle": "7440000", "page.control.state": "spliced", "page.rule": "0x00000002",
	} {
		if got := values[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	fields := map[string]int{}
	for _, f := range x.Fields {
		fields[f.Field]++
		if f.Field == "tcp.seq" && f.Direction == "server to client" {
			_, a0 := conn.Sequence()
			a1, _ := slow.conn.Sequence()
			if want := fmt.Sprintf("+ 0x%08x", a0-a1); f.Does != want {
				t.Errorf("seq toward the client: %s, want %s", f.Does, want)
			}
		}
	}
	for _, f := range []string{"ethernet.destination", "ethernet.source", "ethernet.vlan", "ip.ttl", "tcp.source_port", "tcp.destination_port", "tcp.seq", "tcp.ack", "tcp.window", "tcp.checksum"} {
		if fields[f] != 2 {
			t.Errorf("field %s is explained %d times, want twice", f, fields[f])
		}
	}

	// The page alone, as it was saved.
	b, err := json.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	var saved view.Page
	if err := json.Unmarshal(b, &saved); err != nil {
		t.Fatal(err)
	}
	alone, err := view.ExplainPage(saved)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range alone.Fields {
		words(f.Field, f.From, false)
		if f.Field != x.Fields[i].Field || !strings.HasPrefix(x.Fields[i].Does, f.Does) {
			t.Errorf("from the page alone %s %s, want %s %s", f.Field, f.Does, x.Fields[i].Field, x.Fields[i].Does)
		}
	}
	if d := cmp.Diff(ofPage(&x), ofPage(&alone)); d != "" {
		t.Errorf("words of the page (-card +saved):\n%s", d)
	}

	slow.conn.CloseWrite()
	conn.CloseWrite()
	r.run(200 * time.Millisecond)
	if dir := os.Getenv("SPLICE_CAPTURES"); dir != "" {
		for name, b := range map[string][]byte{"page.json": append(b, '\n'), "client.pcap": wires[0].b, "server.pcap": wires[1].b} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestExplainRules explains a connection whose head the card still has: why each rule took it or lost.
func TestExplainRules(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(edit(t, web, "      - {path: /api/*, to: api}", `      - {path: /api/v1/*, to: api}
      - {path: /api/*, method: POST, to: static}
      - {path: /api/*, header: {x-canary: "1"}, to: static}
      - {path: /api/*, to: api}
      - {path: /*, to: app}`))
	r.run(5 * time.Millisecond)
	r.nets[1].drop = func(fromCard bool, _ []byte) bool { return fromCard }
	for _, row := range []struct{ path, want string }{
		{"/api/x", `[0 img.example/photos/* static false host] [1 /api/v1/* api false path] [2 /api/* method POST static false method] ` +
			`[3 /api/* header x-canary=1 static false header x-canary] [4 /api/* api true ] [5 every request app false a rule before it] `},
		{"/", `[0 img.example/photos/* static false host] [1 /api/v1/* api false path] [2 /api/* method POST static false path] ` +
			`[3 /api/* header x-canary=1 static false path] [4 /api/* api false path] [5 every request app true ] `},
	} {
		conn := c.get("198.18.0.80:80", "www.example", row.path)
		r.run(50 * time.Millisecond)
		if err := r.d.View(func(v *view.View) error {
			list, err := v.Connections(context.Background(), view.Filter{})
			if err != nil {
				return err
			}
			for _, one := range list {
				if one.Client != conn.Local().String() {
					continue
				}
				x, err := v.Explain(context.Background(), one.ID)
				if err != nil {
					return err
				}
				got := ""
				for _, w := range x.Rules {
					got += fmt.Sprint("[", w.Index, " ", w.Rule, " ", w.To, " ", w.Took, " ", w.Why, "] ")
				}
				if got != row.want {
					t.Errorf("%s: rules\n%s\nwant\n%s", row.path, got, row.want)
				}
				for _, d := range x.Decisions {
					if d.What == "head" && !strings.Contains(d.Text, "GET "+row.path) {
						t.Errorf("head: %s", d.Text)
					}
				}
				if len(x.Fields) != 0 {
					t.Errorf("%s: fields before the splice: %v", row.path, x.Fields)
				}
				return nil
			}
			return fmt.Errorf("connection of %v not found in %v", conn.Local(), list)
		}); err != nil {
			t.Error(err)
		}
	}
}

// ofPage are the words of the page in the decisions.
func ofPage(x *view.Explanation) (list []string) {
	for _, d := range x.Decisions {
		for _, w := range d.From {
			if strings.HasPrefix(w.Name, "page.") {
				list = append(list, w.Name+" "+w.At+" "+w.Value)
			}
		}
	}
	return list
}
