package bench

import (
	"encoding/json"
	"testing"

	"splicenic/regs"
	"splicenic/runtime/rule"
)

// TestRules runs a small measurement: every head is checked on the way, so here only the result's shape is.
func TestRules(t *testing.T) {
	r, err := Rules(t.Context(), RulesConfig{Rules: 1000, Heads: 2000, Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"rules", "compile_s", "table_bytes", "ns_per_byte_10", "ns_per_byte"} {
		if n, ok := keys[k].(float64); !ok || n <= 0 {
			t.Errorf("%s is %v in %s", k, keys[k], b)
		}
	}
	if r.Rules != 1000 || r.Hosts != 100 || r.HeadBytes < 400 || r.HeadBytes > 600 {
		t.Errorf("%+v", r)
	}
}

func BenchmarkCompile(b *testing.B) {
	routes := routesOf(100_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rule.Compile([]rule.Service{{Name: "bench", Routes: routes}}, rule.Indexes{Size: regs.MemRuleCount}, regs.MemUrlCount, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatching(b *testing.B) {
	m, err := newMatching(100_000, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer m.close()
	for b.Loop() {
		if _, err := m.round(len(m.heads)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(m.text)), "ns/byte")
}
