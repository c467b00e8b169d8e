package daemon_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/view"
)

// TestRuleList: each rule is listed with all that it asks, where it leads, and who decides on it.
func TestRuleList(t *testing.T) {
	r := newRig(t, small)
	r.apply(`
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services:
  - name: web
    listen: [198.18.0.80:80]
    routes:
      - {host: "*.example", path: /a/*, method: [GET, HEAD], header: {X-Canary: "1"}, query: {q: {present: true}}, to: app}
      - {path: /a/*/b, source: 198.18.0.0/24, to: app}
      - {path: {regex: "/a[0-9]+"}, to: app}
      - {host: old.example, to: {redirect: {scheme: https, status: 301}}}
      - {path: /gone, to: {reply: 410}}
    default: {reply: 404}
  - {name: other, listen: [198.18.0.81:80], default: app}
groups:
  - {name: app, servers: [{address: 198.18.1.11:8080}]}
`)
	if err := r.d.View(func(v *view.View) error {
		rules, err := v.Rules(context.Background())
		var got []string
		for _, x := range rules {
			got = append(got, fmt.Sprintf("%s %s%s %s (%s) %s%s %s %s", x.Service, x.Host, x.Path, x.Match, strings.Join(x.When, "; "), x.Group, x.Answer, x.Decides, x.Slow))
		}
		want := []string{
			"other  default () app card ",
			"web old.example/* prefix () reply 301 card ",
			"web *.example/a/* prefix (method GET,HEAD; header x-canary=1; query q) app card ",
			"web /gone exact () reply 410 card ",
			"web /a/*/b pattern (source 198.18.0.0/24) app card ",
			"web /a[0-9]+ regex () app host its path is a regular expression",
			"web  default () reply 404 host ",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rules (-want +got):\n%s", diff)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
