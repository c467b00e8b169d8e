package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"splicenic/tools/demo"
)

// TestDemoWithoutNamespaces runs the demo where no namespace may be made: it runs in memory and says so.
func TestDemoWithoutNamespaces(t *testing.T) {
	const forbid = "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces && "
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skipf("needs package util-linux: %v", err)
	}
	if out, err := exec.Command("unshare", "-Ur", "sh", "-c", forbid+"true").CombinedOutput(); err != nil {
		t.Skipf("no user namespace to forbid others in: %v\n%s", err, out)
	}
	c := exec.Command("unshare", "-Ur", "sh", "-c", forbid+"exec splicectl demo --requests 30 -o json")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.Bytes())
	}
	var r demo.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if r.Mode != "memory" || r.Why == "" || r.Requests.OK != 30 || r.Requests.Failed != 0 {
		t.Errorf("mode %q, why %q, %d ok, %d failed", r.Mode, r.Why, r.Requests.OK, r.Requests.Failed)
	}
	if !strings.Contains(errs.String(), "the demo runs in memory") {
		t.Errorf("stderr does not say so: %q", errs.String())
	}
}

// TestDemo runs it the best way there is here, also as an ordinary user.
func TestDemo(t *testing.T) {
	out, err := exec.Command("splicectl", "demo", "--requests", "24", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var r demo.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if r.Requests.OK != 24 || len(r.Requests.List) != 24 || r.Card.Pages.Free != r.Card.Pages.Total || len(r.Card.Counters) == 0 {
		t.Errorf("%+v", r)
	}
}
