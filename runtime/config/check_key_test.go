package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestCheckKeys(t *testing.T) {
	for _, tt := range []struct {
		name, text         string // of the group
		want               Check
		quorum, hysteresis uint64
	}{
		{"none said", "", Check{}, 0, 0},
		{"none", "    check: {type: none}\n", Check{}, 0, 0},
		{"tcp", "    check: {type: tcp}\n", Check{Type: TCPCheck}, 0, 0},
		{"tcp with all", "    check: {type: tcp, port: 81, interval: 5s, timeout: 500ms, rise: 1, fall: 2, start: down}\n",
			Check{Type: TCPCheck, Port: 81, Interval: 5 * time.Second, Timeout: 500 * time.Millisecond, Rise: 1, Fall: 2, StartDown: true}, 0, 0},
		{"http", "    check: {type: http, path: /healthz?a=b, host: app.example, status: [200-299, 404], start: up}\n",
			Check{Type: HTTPCheck, Path: "/healthz?a=b", Host: "app.example", Status: []StatusRange{{200, 299}, {404, 404}}}, 0, 0},
		{"ping", "    check: {type: ping, interval: 10ms}\n", Check{Type: PingCheck, Interval: 10 * time.Millisecond}, 0, 0},
		{"udp", "    check: {type: udp, port: 0, send: \"a\\0b\", expect: c}\n", Check{Type: UDPCheck, Send: "a\x00b", Expect: "c"}, 0, 0},
		{"quorum", "    quorum: 2\n    hysteresis: 1\n", Check{}, 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Load("x.yaml", []byte(strings.Replace(small, "198.18.1.11:80}", "198.18.1.11:80, weight: 3}", 1)+tt.text))
			if err != nil {
				t.Fatal(err)
			}
			g := c.Groups[0]
			if d := cmp.Diff(tt.want, g.Check, cmpopts.IgnoreFields(Check{}, "At")); d != "" || g.Quorum != tt.quorum || g.Hysteresis != tt.hysteresis {
				t.Errorf("%s\nquorum %d, hysteresis %d", d, g.Quorum, g.Hysteresis)
			}
		})
	}
}

func TestCheckProblems(t *testing.T) {
	check := func(inside string) string { return "    check: {" + inside + "}\n" }
	for _, tt := range []struct{ name, text, want string }{
		{"no mapping", "    check: tcp\n", "groups[0].check: wants a mapping"},
		{"no type", check("interval: 1s"), "x.yaml:12:12: groups[0].check: type is missing: tcp, http, ping, udp or none"},
		{"unknown type", check("type: htp"), `"htp" is no type of a check; there is tcp, http, ping, udp, none`},
		{"unknown key", check("type: tcp, intervall: 1s"), "groups[0].check.intervall: unknown key"},
		{"twice", check("type: tcp, type: tcp"), "is given twice"},
		{"port too large", check("type: tcp, port: 65536"), "port is 65536; it may be 0 to 65535"},
		{"port of a ping", check("type: ping, port: 7"), "groups[0].check.port: means nothing to a check of type ping, only to tcp, http, udp"},
		{"path of tcp", check("type: tcp, path: /"), "groups[0].check.path: means nothing to a check of type tcp, only to http"},
		{"expect of http", check("type: http, expect: a"), "means nothing to a check of type http, only to udp"},
		{"interval too short", check("type: tcp, interval: 9ms"), "interval is 9ms; it may be 10ms to 24h0m0s"},
		{"interval without a unit", check("type: tcp, interval: 2"), "duration 2 has no unit"},
		{"timeout too long", check("type: tcp, timeout: 25h"), "timeout is 25h0m0s; it may be"},
		{"rise of none", check("type: tcp, rise: 0"), "rise is 0; it may be 1 to 100"},
		{"fall of many", check("type: tcp, fall: 101"), "fall is 101; it may be 1 to 100"},
		{"start", check("type: tcp, start: on"), `"on" is no start; there is up, down`},
		{"path without a slash", check("type: http, path: healthz"), `"healthz" does not begin with a slash`},
		{"path with a space", check(`type: http, path: "/a b"`), "holds a space, a control character"},
		{"host that ends its line", check(`type: http, host: "a\r\nb: c"`), "holds a space, a control character"},
		{"host empty", check(`type: http, host: ""`), "has 0 bytes; it may have 1 to 512"},
		{"status no list", check("type: http, status: 200"), "wants a list, got the number 200: write [200]"},
		{"status out of range", check("type: http, status: [99]"), "wants a status or a range of them"},
		{"status backwards", check("type: http, status: [399-200]"), "wants a status or a range of them"},
		{"status with a sign", check(`type: http, status: ["+200"]`), "wants a status or a range of them"},
		{"many statuses", check("type: http, status: [200, 201, 202, 203, 204, 205, 206, 207, 208]"), "has 9 ranges; 8 are the most"},
		{"text too long", check("type: udp, send: " + strings.Repeat("a", 513)), "has 513 bytes; 512 are the most"},
		{"quorum of none", "    quorum: 0\n", "quorum is 0; it may be 1 to 4294967295"},
		{"quorum beyond all", "    quorum: 2\n", "x.yaml:10:5: groups[0].quorum: 2 with hysteresis 0 is more than all weights of group app together (1)"},
		{"hysteresis beyond all", "    hysteresis: 1\n", "1 with hysteresis 1 is more than all weights"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load("x.yaml", []byte(small+tt.text))
			var p Problems
			if !errors.As(err, &p) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is\n%v\nwant in it\n%s", err, tt.want)
			}
		})
	}
}

func TestCheckDiff(t *testing.T) {
	load := func(text string) *Config {
		c, err := Load("x.yaml", []byte(small+text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	changes := Diff(load(""), load("    check: {type: http, path: /a, status: [200-204], start: down}\n"))
	if len(changes) != 1 || !strings.Contains(changes[0].To, "check http start down path /a status [200-204]") {
		t.Errorf("changes %v", changes)
	}
}
