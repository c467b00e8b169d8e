package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportGateway compares imports with what is kept beside them, and reads them back.
func TestImportGateway(t *testing.T) {
	files, err := filepath.Glob("testdata/gateway/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no objects to import")
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			in, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			g, err := ImportGateway("in.yaml", in)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.Replace(name, ".in.", ".want.", 1))
			if got := g.YAML(); err != nil || got != string(want) {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
			}
			back(t, g)
		})
	}
}

// back reads an import as a part of a configuration and compares the routes.
func back(t *testing.T, g *Imported) {
	t.Helper()
	text := "emu: {client: eth1, server: eth2}\nports: {client: {addresses: [198.18.0.1/24]}, server: {addresses: [198.18.1.1/24]}}\n" + g.YAML()
	for strings.Contains(text, "listen: []") {
		text = strings.Replace(text, "listen: []", "listen: [198.18.0.80:"+string(rune('1'+strings.Count(text, "listen: [198")))+"]", 1)
	}
	for strings.Contains(text, "servers: []") {
		text = strings.Replace(text, "servers: []", "servers: [{address: 198.18.1.99:80}]", 1)
	}
	c, err := Load("x.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\nof\n%s", err, text)
	}
	for i := range g.Services {
		for n := range g.Services[i].Routes {
			want, got := &g.Services[i].Routes[n], &c.Services[i].Routes[n]
			if want.Match.String() != got.Match.String() || want.To.describe() != got.To.describe() {
				t.Errorf("route %q to %q is read back as %q to %q", want.Match.String(), want.To.describe(), got.Match.String(), got.To.describe())
			}
		}
	}
}

func TestImportGatewayProblems(t *testing.T) {
	route := func(rules string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec:\n  rules:\n" + rules
	}
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "holds no HTTPRoute"},
		{"syntax", "a: [", "in.yaml:1:"},
		{"no object", "- a\n", "wants a mapping (an object)"},
		{"no kind", "a: b\n", "in.yaml:1:1: kind: is missing"},
		{"deep", strings.Repeat("[", 100), "nests deeper"},
		{"no spec", "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n", "spec: is missing"},
		{"rules is no list", route("    matches: []\n"), "rules: wants a list"},
		{"regular expression", route("  - matches: [{path: {type: RegularExpression, value: \"(\"}}]\n"), "in.yaml:6:22: HTTPRoute default/a.rules[0].matches[0].path: regular expression"},
		{"path", route("  - matches: [{path: {value: a}}]\n"), "does not begin with a slash"},
		{"port", route("  - backendRefs: [{name: a, port: 99999}]\n"), "port is 99999"},
		{"a name that would begin a key", route("  - backendRefs: [{name: \"b\\ncard: auto #\", port: 80}]\n"), "in.yaml:6:26: HTTPRoute default/a.rules[0].backendRefs[0].name: name"},
		{"a namespace that would", strings.Replace(route(""), "{name: a}", "{name: a, namespace: \"a\\nb: c\"}", 1), "metadata.namespace: name"},
		{"a Gateway that would", strings.Replace(route(""), "spec:\n", "spec:\n  parentRefs: [{name: \"a\\nb: c\"}]\n", 1), "parentRefs[0].name: name"},
		{"address", "kind: EndpointSlice\nendpoints: [{addresses: [x]}]\n", `"x" is no address`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ImportGateway("in.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// TestImportGatewayMany: how many keys a mapping may have says nothing about how many documents there may be.
func TestImportGatewayMany(t *testing.T) {
	const n = 1001
	one := "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec:\n  rules:\n  - backendRefs: [{name: b, port: 80}]\n"
	g, err := ImportGateway("in.yaml", []byte(strings.Repeat("---\n"+one, n)))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(g.Services[0].Routes); got != n {
		t.Errorf("%d routes, want %d", got, n)
	}
}

func FuzzImportGateway(f *testing.F) {
	files, _ := filepath.Glob("testdata/gateway/*.in.yaml")
	for _, name := range files {
		if in, err := os.ReadFile(name); err == nil {
			f.Add(in)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<13 {
			return
		}
		g, err := ImportGateway("in.yaml", text)
		if (g == nil) == (err == nil) {
			t.Fatalf("%v, %v", g, err)
		}
		if g != nil {
			g.YAML()
		}
	})
}
