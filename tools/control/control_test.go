package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/discover"
	"splicenic/runtime/admin"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/runtime/view"
	"splicenic/tools/card"
	"splicenic/tools/open"
)

// TestExplain goes through the kinds of errors and their exit codes.
func TestExplain(t *testing.T) {
	_, problems := config.Load("web.yaml", []byte("card: emu\nservices: 7\n"))
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"anything", errors.New("anything"), ExitFailed},
		{"usage", Usage("what", "do"), ExitUsage},
		{"configuration", problems, ExitUsage},
		{"no card", &open.Error{Card: "vfio:1", Err: fs.ErrNotExist}, ExitNoCard},
		{"card of somebody else", &open.Error{Card: "vfio:1", Err: device.ErrBusy}, ExitBusy},
		{"card gone while it was opened", &open.Error{Card: "vfio:1", Err: device.ErrDeviceLost}, ExitCard},
		{"card process", &card.StartError{Socket: "s", Err: fs.ErrInvalid, Exit: ExitNoCard}, ExitNoCard},
		{"card process killed", &card.StartError{Socket: "s", Err: fs.ErrInvalid}, ExitFailed},
		{"somebody at the socket", card.ErrForeign, ExitBusy},
		{"card process without its file", &card.LostError{Socket: "s", PID: 1, Err: fs.ErrNotExist}, ExitBusy},
		{"bind refused", &discover.BindError{Address: "0000:65:00.0", Err: discover.ErrRefused, Fix: "do"}, ExitRefused},
		{"bind failed", &discover.BindError{Address: "0000:65:00.0", Step: "probe", Err: fs.ErrInvalid}, ExitFailed},
		{"other wires", Refused("what", "where", "do"), ExitRefused},
		{"card whose process is stopped", &card.StateError{State: "stopped", Err: &open.Error{Card: "vfio-user:1", Err: device.ErrDeviceLost}}, ExitCard},
		{"no such card", &open.Error{Card: "x", Err: open.ErrName}, ExitUsage},
		{"lost", &device.OpError{Op: "load", Dev: "emu", Err: device.ErrDeviceLost}, ExitCard},
		{"mismatch", &driver.MismatchError{}, ExitCard},
		{"running", admin.ErrRunning, ExitBusy},
		{"busy", device.ErrBusy, ExitBusy},
		{"not a socket", admin.ErrNotSocket, ExitFailed},
		{"needs a restart", daemon.ErrRestart, ExitUsage},
		{"refused", view.ErrRefused, ExitRefused},
		{"permission", fs.ErrPermission, ExitFailed},
		{"interrupted", context.Canceled, ExitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Explain("do it", fmt.Errorf("wrapped: %w", tt.err))
			if f.Exit != tt.want {
				t.Errorf("exit code %d, want %d", f.Exit, tt.want)
			}
			var b bytes.Buffer
			f.Print(&b, "splicectl it")
			lines := strings.Split(strings.TrimSpace(b.String()), "\n")
			if want := fmt.Sprintf("splicectl it failed: %s (exit code %d)", exitWords[tt.want], tt.want); lines[len(lines)-1] != want {
				t.Errorf("last line %q, want %q", lines[len(lines)-1], want)
			}
		})
	}
}

// TestStateTold: what the process of a card does is told also where the card's own error has words of its own.
func TestStateTold(t *testing.T) {
	f := Explain("run", &card.StateError{State: "it is stopped", Err: &open.Error{Card: "vfio-user:1", Err: device.ErrDeviceLost}})
	if !strings.Contains(f.Why, "it is stopped") {
		t.Errorf("%q does not say it", f.Why)
	}
}

// TestLostHelp: what is said about a card process without its file is what works.
func TestLostHelp(t *testing.T) {
	f := Explain("run", fmt.Errorf("look: %w", &card.LostError{Socket: "/run/a.card.sock", PID: 7777777, Err: fs.ErrNotExist}))
	for _, want := range []string{"--card vfio-user:/run/a.card.sock", "kill 7777777"} {
		if !strings.Contains(f.Do, want) {
			t.Errorf("%q does not say %q", f.Do, want)
		}
	}
	if want := "/run/a.card.json, does not tell: it is gone"; !strings.Contains(f.Why, want) {
		t.Errorf("%q does not say %q", f.Why, want)
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  []string
		want []string
	}{
		{"register", RegisterNames("amu.quarantine_e"), []string{"amu.quarantine_early"}},
		{"no register", RegisterNames("amu.x"), nil},
		{"fields of a whole register", FieldNames("control.reset."), []string{"control.reset.data_path", "control.reset.host_interface"}},
		{"field", FieldNames("control.reset.d"), []string{"control.reset.data_path"}},
		{"field of an instance", FieldNames("port.client.control.loo"), []string{"port.client.control.loopback"}},
		{"field of an element", FieldNames("directory.entry_type[3]."), []string{"directory.entry_type[3].type", "directory.entry_type[3].version"}},
		{"storable", StorableNames("amu."), []string{"amu.control", "amu.low_watermark"}},
		{"values", ValueNames("configuration.flash_command.operation"), []string{"none", "read", "program", "erase", "protect", "unprotect"}},
		{"values of a number", ValueNames("amu.low_watermark.pages"), nil},
		{"values of nothing", ValueNames("nothing"), nil},
		{"states", view.States(), []string{"free", "syn_rcvd", "wait_head", "server_syn", "spliced", "closing", "quarantine", "stateless"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, tt.got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestKeyQuery(t *testing.T) {
	for _, tt := range []struct {
		name, side string
		key        Key
		want       string // empty: refused
	}{
		{"client side", "client", Key{Client: "198.18.0.10:40000", VIP: "198.18.0.80:80"}, "address=198.18.0.10&destination=80&port=40000&vip=198.18.0.80"},
		{"ipv6 and vlan", "client", Key{Client: "[2001:db8::10]:1", VIP: "[2001:db8::80]:80", VLAN: 7}, "address=2001%3Adb8%3A%3A10&destination=80&port=1&vip=2001%3Adb8%3A%3A80&vlan=7"},
		{"server side", "server", Key{Client: "198.18.0.10:40000", Server: "198.18.1.11:8080"}, "address=198.18.0.10&port=40000&server=198.18.1.11%3A8080"},
		{"no client", "client", Key{VIP: "198.18.0.80:80"}, ""},
		{"no vip", "client", Key{Client: "198.18.0.10:40000"}, ""},
		{"no server", "server", Key{Client: "198.18.0.10:40000", VIP: "198.18.0.80:80"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := tt.key.Query(tt.side)
			if (err != nil) != (tt.want == "") || q.Encode() != tt.want {
				t.Errorf("got %q, %v, want %q", q.Encode(), err, tt.want)
			}
		})
	}
}
