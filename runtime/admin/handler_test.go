package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/runtime/admin"
	"splicenic/runtime/daemon"
	"splicenic/runtime/view"
)

const good = `emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24], gateway: 198.18.0.254}
  server: {addresses: [198.18.1.1/24], forward: routed}
services:
  - name: web
    listen: [198.18.0.80:80]
    requests: close
    routes: [{host: img.example, path: /photos/*, to: static}, {path: /health, to: app}]
    default: app
groups:
  - {name: app, servers: [{address: 198.18.1.11:80, weight: 3}, {address: 198.18.1.12:80}]}
  - {name: static, scheduler: rr, servers: [{address: 198.18.1.21:80}]}
`

// open makes an emulated card and opens it.
func open(t *testing.T) *driver.Card {
	t.Helper()
	c, _ := openBoth(t)
	return c
}

func openBoth(t *testing.T) (*driver.Card, *emu.Card) {
	t.Helper()
	client, _ := port.Pair(port.MemConfig{})
	server, _ := port.Pair(port.MemConfig{})
	card, err := emu.New(emu.Config{Geometry: emu.Geometry{Pages: 256, Heads: 16, CamClientWords: 1024, CamServerWords: 2048}, Client: client, Server: server})
	if err != nil {
		t.Fatal(err)
	}
	dev := vfiousertest.Join(t, card)
	now := time.Duration(0)
	c, err := driver.Open(context.Background(), dev, driver.Config{Random: rand.NewChaCha8([32]byte{}), Pump: func() { now += time.Millisecond; card.Step(now) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Shutdown(context.Background())
		dev.Close()
		card.Close()
	})
	return c, card
}

// ask sends a request and decodes the answer.
func ask(t *testing.T, h http.Handler, method, path, body string) (int, any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	var v any
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s %s: answer %q: %v", method, path, w.Body, err)
	}
	if d.More() {
		t.Errorf("%s %s: more than one document", method, path)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: content type %q", method, path, got)
	}
	return w.Code, v
}

// at digs into an answer: "ports.0.name".
func at(v any, path string) any {
	for _, p := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[p]
		case []any:
			i := int(p[0] - '0')
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func file(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(admin.File{File: "x.yaml", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEndpoints(t *testing.T) {
	c := open(t)
	d, err := daemon.New(daemon.Config{Card: c})
	if err != nil {
		t.Fatal(err)
	}
	h := admin.Handler(d, d)
	now := time.Duration(0)
	type is map[string]any
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               is
	}{
		{"GET", "/v1/config", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/rules", "", 200, is{}},
		{"POST", "/v1/config/check", file(t, good), 200, is{"warnings.0": nil}},
		{"POST", "/v1/config/check", file(t, good+"cart: x\n"), 422, is{"error.exit": 2.0, "problems.0.line": 14.0, "problems.0.key": "cart", "problems.0.near": "card"}},
		{"POST", "/v1/config/check", `{"text": 5}`, 400, is{"error.exit": 2.0}},
		{"POST", "/v1/config/check", `{"texts": "a"}`, 400, is{"error.exit": 2.0}},
		{"POST", "/v1/config/diff", file(t, good), 200, is{"changes.0.op": "add"}},
		{"POST", "/v1/config/apply", file(t, good), 200, is{"generation": 1.0, "changes.0.op": "add"}},
		{"POST", "/v1/config/apply", file(t, good), 200, is{"generation": 1.0, "changes.0": nil}},
		{"POST", "/v1/config/apply", file(t, good+"x: y\n"), 422, is{"error.what": "apply configuration", "error.exit": 2.0, "problems.0.message": "unknown key of the configuration; there is card, emu, ports, services, groups, defence, log, dns, seed, socket"}},
		{"POST", "/v1/config/apply", file(t, good+"seed: 9\n"), 409, is{"error.exit": 6.0}},
		{"POST", "/v1/config/diff", file(t, strings.Replace(good, "weight: 3", "weight: 4", 1)), 200, is{"changes.0.kind": "server", "changes.0.from": "weight 3", "changes.0.to": "weight 4", "changes.1": nil}},
		{"GET", "/v1/config", "", 200, is{"file": "x.yaml", "text": good}},
		{"GET", "/v1/status", "", 200, is{"body": c.Device().Info().Body, "generation": 1.0, "config.servers": 3.0, "last_reload.ok": false, "attached": "reset", "accepting": true, "unresolved": 3.0, "exceptions.lost": 0.0, "state_errors": 0.0, "servers.0.profile": "unknown", "servers.0.mss": 0.0}},
		{"GET", "/v1/card", "", 200, is{"body": c.Device().Info().Body, "magic": "0x434c5053", "blocks.0.name": "directory", "geometry.pages": 256.0, "ports.1.name": "server"}},
		{"GET", "/v1/ports", "", 200, is{"0.name": "client", "0.enabled": true, "0.link": true, "0.mtu": 1500.0, "0.addresses.0": "198.18.0.1/24", "0.gateways.0": "198.18.0.254", "1.forward": "routed", "1.counters.rx_frames": 0.0}},
		{"GET", "/v1/registers?name=amu.free&name=timer.idle", "", 200, is{"0.name": "amu.free", "0.value": 256.0, "0.access": "ro", "1.value": 7440000.0, "1.fields.0.name": "ticks"}},
		{"GET", "/v1/registers?name=amu.control.enable", "", 200, is{"0.value": 1.0, "0.name": "amu.control.enable"}},
		{"GET", "/v1/registers?name=port.client", "", 200, is{"0.name": "port.client.control"}},
		{"GET", "/v1/registers?name=transmit.client_end.isn_key", "", 200, is{"0.name": "transmit.client_end.isn_key[0]", "0.value": nil, "0.access": "wo", "3.name": "transmit.client_end.isn_key[3]", "4": nil}},
		{"GET", "/v1/registers?name=nothing", "", 404, is{"error.exit": 1.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": 5000}`, 200, is{"value": 5000.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle.ticks", "value": "0x1388"}`, 200, is{"value": 5000.0}},
		{"PUT", "/v1/registers", `{"name": "amu.free", "value": 1}`, 409, is{"error.exit": 6.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": 4294967295}`, 409, is{"error.exit": 6.0}},
		{"PUT", "/v1/registers", `{"name": "hostif.cause", "value": 0}`, 409, is{"error.exit": 6.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": "soon"}`, 422, is{"error.exit": 2.0, "error.why": `value "soon" of timer.idle is no number: write it in decimal, or in hexadecimal after 0x: wrong usage`}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": -1}`, 422, is{"error.exit": 2.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": null}`, 422, is{"error.exit": 2.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": "0x"}`, 422, is{"error.exit": 2.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": "0010"}`, 200, is{"value": 10.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": 99999999999999999999}`, 409, is{"error.exit": 6.0}},
		{"PUT", "/v1/registers", `{"name": "configuration.flash_command.operation", "value": "melt"}`, 422, is{"error.exit": 2.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": 5000} x`, 400, is{"error.exit": 2.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": 5000}{}`, 400, is{"error.exit": 2.0}},
		{"PUT", "/v1/registers", `{"name": "timer.idle", "value": 5000}` + " \n", 200, is{"value": 5000.0}},
		{"PUT", "/v1/registers", `{"name": "control.reset", "value": 1}`, 409, is{"error.exit": 6.0, "error.do": "splicectl card reset brings the card up anew and writes the configuration again"}},
		{"PUT", "/v1/registers", `{"name": "control.scratch", "value": 9}`, 200, is{"value": 9.0}},
		{"PUT", "/v1/registers", `{"name": "ring.event.consumer", "value": 0}`, 409, is{"error.exit": 6.0}},
		{"PUT", "/v1/registers", `{"name": "amu.control.enable", "value": 0}`, 409, is{"error.exit": 6.0}},
		{"POST", "/v1/config/check", `"` + strings.Repeat("x", 33<<20) + `"`, 413, is{"error.exit": 2.0, "error.why": "request body too large: it may have 33558528 bytes"}},
		{"PUT", "/v1/registers", `{"name": "x", "value": 1}`, 404, is{"error.exit": 1.0}},
		{"GET", "/v1/cam/client", "", 200, is{"0": nil}},
		{"GET", "/v1/cam/left", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/cam/client/lookup?address=192.0.2.1&port=5&destination=80&vip=198.18.0.80", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/cam/client/lookup?address=192.0.2.1&vip=203.0.113.1", "", 404, is{"error.why": "VIP 203.0.113.1: not found"}},
		{"GET", "/v1/cam/server/lookup?address=192.0.2.1&server=198.18.1.11:80", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/cam/client/lookup?address=x", "", 400, is{"error.exit": 2.0}},
		{"GET", "/v1/cam/client/lookup?address=192.0.2.1&port=70000", "", 400, is{"error.exit": 2.0}},
		{"GET", "/v1/pages/7", "", 200, is{"n": 7.0, "l": "0x700", "state": "free", "fields.control.state": nil, "head": nil}},
		{"GET", "/v1/pages/256", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/pages/x", "", 400, is{"error.exit": 2.0}},
		{"GET", "/v1/rules", "", 200, is{"0.host": "img.example", "0.path": "/photos/*", "0.match": "prefix", "0.group": "static", "0.index": 0.0, "1.path": "/health", "1.match": "exact", "1.hits": 0.0, "2.match": "default", "2.group": "app", "2.index": nil, "2.hits": nil, "3": nil}},
		{"GET", "/v1/connections", "", 200, is{"0": nil}},
		{"GET", "/v1/connections?state=spliced&service=web", "", 200, is{"0": nil}},
		{"GET", "/v1/connections?state=splced", "", 422, is{"error.exit": 2.0, "error.why": `there is no state "splced", there are free, syn_rcvd, wait_head, server_syn, spliced, closing, quarantine, stateless; did you mean "spliced"?: wrong usage`}},
		{"GET", "/v1/connections?service=wbe", "", 422, is{"error.exit": 2.0, "error.why": `there is no service "wbe", there are web; did you mean "web"?: wrong usage`}},
		{"GET", "/v1/connections/3", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/connections/3.9", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/connections/x", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/explain?connection=3", "", 404, is{"error.exit": 1.0, "error.what": "explain connection"}},
		{"GET", "/v1/explain?connection=x.y", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/explain", "", 404, is{"error.exit": 1.0}},
		{"GET", "/v1/services", "", 200, is{"pages": 256.0, "services.0.name": "web", "services.0.listen.0": "198.18.0.80:80", "services.0.mode": "splice", "services.0.persistence": nil, "services.0.groups.0.name": "app", "services.0.groups.0.scheduler": "wrr", "services.0.groups.0.servers.0.address": "198.18.1.11:80", "services.0.groups.0.servers.0.weight": 3.0, "services.0.groups.0.servers.0.active": 0.0, "services.0.groups.1.name": "static", "services.0.groups.1.servers.0.closed": false, "services.1": nil}},
		{"GET", "/v1/services?traffic=1", "", 200, is{"services.0.traffic.connections": 0.0}},
		{"GET", "/v1/groups", "", 200, is{"0.name": "app", "0.scheduler": "wrr", "0.slots": 4.0, "0.servers.0.address": "198.18.1.11:80", "0.servers.0.weight": 3.0, "1.scheduler": "rr", "0.health.check": "none", "0.health.weight": 4.0, "0.health.lost": false, "0.health.serving": "app"}},
		{"GET", "/v1/servers", "", 200, is{"2.address": "198.18.1.21:80", "2.closed": false}},
		{"GET", "/v1/neighbours", "", 200, is{"0.address": "198.18.0.254", "0.state": "incomplete", "0.wanted": true}},
		{"GET", "/v1/stats", "", 200, is{"pages.free": 256.0, "pages.total": 256.0, "heads.free": 16.0, "connections.live": 0.0, "connections.opened": 0.0, "ports.client.rx_frames": 0.0, "cam.client.hits": 0.0, "runtime.actions.reset": 0.0}},
		{"GET", "/v1/events", "", 200, is{"0": nil}},
		{"POST", "/v1/card/reset", "", 200, is{}},
		{"GET", "/v1/rules", "", 200, is{"2.match": "default"}},
		{"GET", "/v1/nothing", "", 404, is{"error.exit": 2.0}},
		{"DELETE", "/v1/rules", "", 405, is{"error.exit": 2.0}},
		{"GET", "/", "", 404, is{"error.exit": 2.0}},
		{"GET", "/v1//status", "", 404, is{"error.exit": 2.0}},
		{"POST", "/v1/./config//apply", "", 404, is{"error.exit": 2.0}},
		{"GET", "//", "", 404, is{"error.exit": 2.0}},
		{"GET", "/v1/../v1/status", "", 404, is{"error.exit": 2.0}},
	} {
		status, v := ask(t, h, tt.method, tt.path, tt.body)
		if tt.method == "POST" { // the card opens without next hops, some time later
			for range 2 {
				now += 2 * time.Second
				if err := d.Step(now); err != nil {
					t.Fatal(err)
				}
			}
		}
		if status != tt.status {
			t.Errorf("%s %s: status %d, want %d: %v", tt.method, tt.path, status, tt.status, v)
			continue
		}
		for path, want := range tt.want {
			if got := at(v, path); got != want {
				t.Errorf("%s %s: %s is %v, want %v", tt.method, tt.path, path, got, want)
			}
		}
		if status != 200 {
			for _, part := range []string{"what", "where", "why", "do"} {
				if s, _ := at(v, "error."+part).(string); s == "" {
					t.Errorf("%s %s: error without %s: %v", tt.method, tt.path, part, v)
				}
			}
		}
	}
	_, v := ask(t, h, "GET", "/v1/pages/7", "")
	if got := v.(map[string]any)["fields"].(map[string]any)["control.state"]; got != "free" {
		t.Errorf("control.state is %v", got)
	}
	_, v = ask(t, h, "GET", "/v1/registers", "")
	if n := len(v.([]any)); n < 300 {
		t.Errorf("%d registers", n)
	}
}

// TestBareCard: what needs no runtime works without one, the rest says that there is none.
func TestBareCard(t *testing.T) {
	h := admin.Handler(admin.Bare(open(t)), nil)
	for path, want := range map[string]int{
		"/v1/card": 200, "/v1/ports": 200, "/v1/registers?name=amu": 200, "/v1/cam/client": 200, "/v1/pages/0": 200, "/v1/rules": 200, "/v1/connections": 200, "/v1/explain?connection=1": 404,
		"/v1/connections?service=3": 200, "/v1/connections?service=web": 422, "/v1/connections?state=none": 422,
		"/v1/groups": 200, "/v1/stats": 200, "/v1/status": 503, "/v1/config": 503, "/v1/neighbours": 503, "/v1/events": 503,
	} {
		if status, v := ask(t, h, "GET", path, ""); status != want {
			t.Errorf("GET %s: status %d, want %d: %v", path, status, want, v)
		}
	}
	for path, want := range map[string]int{"/v1/config/check": 200, "/v1/config/diff": 200, "/v1/config/apply": 503, "/v1/doctor": 503} {
		if status, v := ask(t, h, "POST", path, file(t, good)); status != want {
			t.Errorf("POST %s: status %d, want %d: %v", path, status, want, v)
		}
	}
	for _, body := range []string{`{"name": "amu.control.enable", "value": 0}`, `{"name": "ring.event.control", "value": 0}`, `{"name": "control.reset.host_interface", "value": 1}`} {
		if status, v := ask(t, h, "PUT", "/v1/registers", body); status != 200 {
			t.Errorf("store %s: status %d: %v", body, status, v)
		}
	}
	if status, _ := ask(t, h, "POST", "/v1/card/reset", ""); status != 200 {
		t.Errorf("reset: status %d", status)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("GET", "/v1/registers?name=amu", "")
	f.Add("PUT", "/v1/registers", `{"name":"timer.idle","value":"0x10"}`)
	f.Add("POST", "/v1/config/check", `{"file":"a","text":"card: auto\n"}`)
	f.Add("GET", "/v1/cam/client/lookup?address=::1&port=1&vlan=5000", "")
	f.Add("GET", "/v1/connections/1.2?limit=-1", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
		if err != nil || !strings.HasPrefix(path, "/") || len(body) > 4096 {
			return
		}
		w := httptest.NewRecorder()
		fuzzHandler().ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) && w.Code < 300 {
			t.Fatalf("%s %s: answer %q", method, path, w.Body)
		}
	})
}

// fuzzHandler answers without a card's tables behind it: only reading a request is under test.
func fuzzHandler() http.Handler { return admin.Handler(nowhere{}, nil) }

type nowhere struct{}

func (nowhere) View(func(*view.View) error) error { return device.ErrClosed }
