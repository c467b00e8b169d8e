package plan

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/config"
)

// TestDocuments: the arithmetic of the documents, which reckon with 288,000 pages once and with 288 × 1024 once.
func TestDocuments(t *testing.T) {
	p := Make(Given{})
	for _, tt := range []struct {
		name            string
		got, want, near float64
	}{
		{"throughput, MB/s", p.Throughput / 1e6, 8.93, 0.005},
		{"servers of a director", p.Servers, 11.2, 0.05},
		{"longest life of 288,000 pages, s", Exhaustion(288_000, 21_000), 13.7, 0.05},
		{"longest life of 294,912 pages, s", p.LongestLife, 14.04, 0.005},
		{"SYN flood, s", p.Flood.Seconds, 0.20, 0.005},
		{"SYN flood at 128K pages, s", Exhaustion(128<<10, 1.488e6), 0.09, 0.005},
		{"SYNs of a port, Mpps", p.Given.SYNRate / 1e6, 1.488, 0.0005},
		{"devices of addresses alone", float64(p.CAM[0].Devices), 1, 0},
		{"devices of whole keys", float64(p.CAM[2].Devices), 5, 0}, // 2 × 288K words of 144 bits are 81 Mbit
		{"load of a card full of IPv6", p.CAM[6].Load, 0.5625, 0},
		{"servers by dr", p.Methods[4].OfDirector, 22.3, 0.05},
		{"connections of a FULLNAT server", float64(p.Ports.PerServer), 64512, 0},
		{"new ones a second", p.Ports.Rate, 1075.2, 0.01},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if math.Abs(tt.got-tt.want) > tt.near {
				t.Errorf("got %v, want %v", tt.got, tt.want)
			}
		})
	}
	if p.Flood.Cookies != nil {
		t.Error("cookies take pages")
	}
	for words, bits := range map[uint64]uint64{288 << 10: 64, 128 << 10: 144, 64 << 10: 288} {
		if mbit, n := Silicon(words, bits); n != 1 || mbit != 18 {
			t.Errorf("%d words of %d bits: %v Mbit, %d devices", words, bits, mbit, n)
		}
		if _, n := Silicon(words+1, bits); n != 2 {
			t.Errorf("one word more: %d devices", n)
		}
	}
}

// TestMake: what bounds a plan.
func TestMake(t *testing.T) {
	yes := true
	for _, tt := range []struct {
		name  string
		given Given
		want  func(p *Plan) (got, want any)
	}{
		{"the port, not the processor", Given{CostNs: 150}, func(p *Plan) (any, any) { return p.Methods[1].Bound, "port" }},
		{"directors for a goal", Given{Goal: 40e6}, func(p *Plan) (any, any) { return *p.Directors, 5.0 }},
		{"no goal", Given{}, func(p *Plan) (any, any) { return p.Directors == nil, true }},
		{"directors for servers", Given{Servers: []Servers{{Method: "nat", Count: 12}}}, func(p *Plan) (any, any) { return p.Methods[0].Directors, 2.0 }},
		{"the same by dr", Given{Servers: []Servers{{Method: "dr", Count: 12}}}, func(p *Plan) (any, any) { return p.Methods[0].Directors, 1.0 }},
		{"ports", Given{Servers: []Servers{{Method: "fullnat", Count: 3, Locals: 1}}}, func(p *Plan) (any, any) { return p.Ports.All, uint64(193536) }},
		{"pages before ports", Given{Servers: []Servers{{Method: "fullnat", Count: 3, Locals: 4}}}, func(p *Plan) (any, any) { return p.Ports.Bound, "pages" }},
		{"room before pages", Given{PortRoom: 1000, Servers: []Servers{{Method: "fullnat", Count: 3}}}, func(p *Plan) (any, any) { return p.Ports.Bound, "local-port memory" }},
		{"enough cookies", Given{CookieRate: 3e6}, func(p *Plan) (any, any) { return *p.Flood.Sufficient, yes }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Make(tt.given)
			if got, want := tt.want(&p); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if _, err := json.Marshal(p); err != nil {
				t.Error(err)
			}
			if text := p.Text(); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "!") {
				t.Error(text)
			}
		})
	}
}

// TestConfiguration: each server counts once for each method.
func TestConfiguration(t *testing.T) {
	c, err := config.Load("f", []byte(`card: emu
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services:
  - {name: web, listen: [198.18.0.80:80], routes: [{path: /a, to: b}], default: a}
  - {name: other, listen: [198.18.0.81:80], default: a}
  - {name: passed, listen: [198.18.0.82:80], mode: nat, protocol: tcp, default: mixed}
  - {name: names, listen: [198.18.0.82:53], mode: fullnat, protocol: udp, default: names}
groups:
  - {name: a, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}]}
  - {name: b, servers: [{address: 198.18.1.12:80}, {address: 198.18.1.13:80}]}
  - {name: mixed, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.21:80, method: dr}]}
  - {name: names, local: [198.18.1.100-198.18.1.103], servers: [{address: 198.18.1.31:53}, {address: 198.18.1.32:53}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var g Given
	g.Configuration(c)
	want := []Servers{{"splice", 3, 0}, {"nat", 1, 0}, {"fullnat", 2, 4}, {"dr", 1, 0}}
	if d := cmp.Diff(want, g.Servers); d != "" || g.From != "f" {
		t.Error(g.From, d)
	}
	if p := Make(g); p.Ports.PerServer != 4*60416 || p.Ports.Servers != 2 {
		t.Errorf("ports %+v", p.Ports)
	}
}

func TestQuantity(t *testing.T) {
	for _, tt := range []struct {
		text  string
		units map[string]float64
		want  float64 // zero: refused
	}{
		{"0.8MB/s", Rate, 0.8e6}, {"6.4Mbit/s", Rate, 0.8e6}, {"1Gbit/s", Bits, 1e9}, {"288Ki", Number, 294912}, {"288k", Number, 288000},
		{"1.488Mpps", PerTime, 1.488e6}, {"21k/s", PerTime, 21000}, {"60us", Nanos, 60000}, {"60µs", Nanos, 60000}, {"150ns", Nanos, 150}, {"2ms", Nanos, 2e6},
		{"536", Bytes, 536}, {"1.5KiB", Bytes, 1536},
		{"", Number, 0}, {"k", Number, 0}, {"0", Number, 0}, {"-1", Number, 0}, {"1e40", Number, 0}, {"5 MB/s", Rate, 0}, {"5", Rate, 0}, {"5MB", Rate, 0},
		{"NaN", Number, 0}, {"inf", Number, 0}, {"0x10", Number, 0}, {"1e15G", Number, 0},
	} {
		t.Run(tt.text, func(t *testing.T) {
			got, err := Quantity(tt.text, tt.units)
			if math.Abs(got-tt.want) > 1e-9*tt.want || (err != nil) != (tt.want == 0) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func FuzzQuantity(f *testing.F) {
	for _, s := range []string{"0.8MB/s", "288Ki", "1e3k", "60us", "µ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, units := range []map[string]float64{Number, Bytes, PerTime, Rate, Bits, Nanos} {
			if v, err := Quantity(s, units); err == nil && !(v > 0 && v <= maxQuantity) {
				t.Errorf("%q is %v", s, v)
			}
		}
	})
}
