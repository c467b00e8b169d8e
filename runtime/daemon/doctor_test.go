package daemon_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/daemon"
	"splicenic/runtime/doctor"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

const examined = base + `
services:
  - {name: web, listen: [198.18.0.80:80], mode: dr, protocol: tcp, default: app}
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}, {address: 198.18.1.13:80}]}
`

// TestExamine has a server answer ARP for the VIP that it owns, one that lacks the VIP, and one that is not there. Two ask
// at once and are told the same; one that goes away holds nobody up.
func TestExamine(t *testing.T) {
	r := newRig(t, small)
	if _, err := r.d.Examine(t.Context()); !errors.Is(err, daemon.ErrUnconfigured) {
		t.Errorf("without a configuration: %v", err)
	}
	one := func(addrs ...string) *tcppeer.Host {
		var own []netip.Prefix
		for _, a := range addrs {
			own = append(own, netip.MustParsePrefix(a+"/32"))
		}
		return r.host(1, tcppeer.Config{Addresses: own, TimeWait: -1})
	}
	one("198.18.1.11", "198.18.0.80").Listen(80)
	one("198.18.1.12")
	r.apply(examined)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.d.Examine(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("who went away was told %v", err)
	}
	type result struct {
		found []doctor.Finding
		err   error
	}
	results := make(chan result, 2)
	for range cap(results) {
		go func() {
			found, err := r.d.Examine(t.Context())
			results <- result{found, err}
		}()
	}
	var all []result
	r.until("both are told", time.Minute, func() bool {
		select {
		case x := <-results:
			all = append(all, x)
		default:
		}
		return len(all) == cap(results)
	})
	if all[0].err != nil || all[1].err != nil {
		t.Fatal(all[0].err, all[1].err)
	}
	var got []string
	for _, f := range all[0].found {
		got = append(got, f.Status+" "+f.What+", "+f.Where+": "+f.Number)
	}
	want := []string{
		"ok VIP 198.18.0.80 is nobody else's, client port: nobody else answers ARP",
		"fail VIP 198.18.0.80 is nobody else's, server port: 02:aa:01:00:00:01 (server 198.18.1.11) answers ARP",
		"n/a path to server 198.18.1.11, server port: ", // these hosts answer no echo
		"ok server 198.18.1.11 has VIP 198.18.0.80, service web, dr: SYN-ACK from 198.18.0.80:80",
		"n/a path to server 198.18.1.12, server port: ",
		"fail server 198.18.1.12 has VIP 198.18.0.80, service web, dr: no answer to SYN",
		"fail path to server 198.18.1.13, server port: ",
		"n/a server 198.18.1.13 has VIP 198.18.0.80, service web, dr: ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	c := r.d.Counters()["actions"].(view.Stats)
	if c["examine"] == uint64(0) || c["examine_answer"] == uint64(0) {
		t.Errorf("counted %v packets and %v answers", c["examine"], c["examine_answer"])
	}
}

// TestExamineEnds: the runtime ends while somebody waits.
func TestExamineEnds(t *testing.T) {
	r := newRig(t, small)
	r.apply(examined)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = r.d.Examine(gone) // begins it
	ended := make(chan error)
	go func() {
		_, err := r.d.Examine(t.Context())
		ended <- err
	}()
	r.d.Close()
	if err := <-ended; err == nil {
		t.Error("found something though the runtime had ended")
	}
}
