package netlab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/tools/netlab"
	"splicenic/tools/netlab/httpserver"
)

// TestMain takes an ordinary user into a user namespace, so that every test runs for both kinds of user.
func TestMain(m *testing.M) {
	code, done, err := netlab.Enter()
	switch {
	case done:
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	case err != nil && !errors.Is(err, netlab.ErrNotPermitted):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// newLab makes a lab that ends with the test.
func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	lab, err := netlab.New()
	if errors.Is(err, netlab.ErrNotPermitted) {
		t.Skipf("needs root or user namespaces: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return lab
}

// must stops the test at the first error of a list.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// pair is two hosts on one wire.
func pair(t *testing.T) (lab *netlab.Lab, client, server *netlab.Namespace) {
	t.Helper()
	lab = newLab(t)
	client, err := lab.Namespace("client")
	must(t, err)
	server, err = lab.Namespace("server")
	must(t, err,
		lab.Link(client, "eth0", server, "eth0"),
		client.Addr("eth0", "198.18.0.10/24"), server.Addr("eth0", "198.18.0.20/24"),
		client.Addr("eth0", "2001:db8::10/64"), server.Addr("eth0", "2001:db8::20/64"))
	return lab, client, server
}

// serve runs the named server on a listener until the test ends.
func serve(t *testing.T, ln net.Listener, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- httpserver.Serve(ctx, ln, name) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server %s: %v", name, err)
		}
	})
}

func get(t *testing.T, from *netlab.Namespace, url string) string {
	t.Helper()
	tr := &http.Transport{DialContext: from.Dial}
	defer tr.CloseIdleConnections()
	c := http.Client{Transport: tr, Timeout: 10 * time.Second}
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.Header.Get("Server") + ":" + string(body)
}

func TestHTTP(t *testing.T) {
	_, client, server := pair(t)
	for _, tt := range []struct{ name, address string }{
		{"IPv4", "198.18.0.20:80"}, {"IPv6", "[2001:db8::20]:80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := server.Listen("tcp", tt.address)
			must(t, err)
			serve(t, ln, tt.name)
			if got, want := get(t, client, "http://"+tt.address+"/any/path"), tt.name+":"+tt.name+"\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestDoStaysOnItsThread checks where f runs and that the goroutine is back afterwards, nested calls included.
func TestDoStaysOnItsThread(t *testing.T) {
	_, client, server := pair(t)
	own := func() string {
		s, err := os.Readlink("/proc/thread-self/ns/net")
		must(t, err)
		return s
	}
	outside := own()
	var inClient, inServer, again string
	must(t, client.Do(func() error {
		inClient = own()
		err := server.Do(func() error { inServer = own(); return nil })
		again = own()
		return err
	}))
	if inClient == outside || inServer == outside || inClient == inServer {
		t.Errorf("namespaces are not apart: outside %s, client %s, server %s", outside, inClient, inServer)
	}
	if again != inClient || own() != outside {
		t.Errorf("not back: in client %s then %s, outside %s then %s", inClient, again, outside, own())
	}
	wantErr := errors.New("from f")
	if err := client.Do(func() error { return wantErr }); !errors.Is(err, wantErr) {
		t.Errorf("got %v, want the error of f", err)
	}
}

func TestRoutes(t *testing.T) {
	lab, client, _ := pair(t)
	router, err := lab.Namespace("router")
	must(t, err)
	far, err := lab.Namespace("far")
	must(t, err,
		lab.Link(client, "eth1", router, "near"), lab.Link(far, "eth0", router, "far"),
		client.Addr("eth1", "198.18.1.10/24"), router.Addr("near", "198.18.1.1/24"),
		far.Addr("eth0", "198.18.2.20/24"), router.Addr("far", "198.18.2.1/24"),
		client.Route("198.18.2.0/24", "198.18.1.1"), far.Route("default", "198.18.2.1"),
		client.Addr("eth1", "2001:db8:1::10/64"), router.Addr("near", "2001:db8:1::1/64"),
		far.Addr("eth0", "2001:db8:2::20/64"), router.Addr("far", "2001:db8:2::1/64"),
		client.Route("2001:db8:2::/64", "2001:db8:1::1"), far.Route("default", "2001:db8:2::1"),
		far.Route("198.18.9.0/24", "eth0"),
		router.Sysctl("net.ipv4.ip_forward", "1"), router.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	for _, address := range []string{"198.18.2.20:80", "[2001:db8:2::20]:80"} {
		ln, err := far.Listen("tcp", address)
		must(t, err)
		serve(t, ln, "far")
		if got, want := get(t, client, "http://"+address), "far:far\n"; got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
}

// TestBridge: two hosts behind a bridge are neighbours.
func TestBridge(t *testing.T) {
	lab := newLab(t)
	var n [3]*netlab.Namespace
	for i := range n {
		var err error
		n[i], err = lab.Namespace(fmt.Sprint("host", i))
		must(t, err)
	}
	must(t, lab.Link(n[0], "eth0", n[1], "left"), lab.Link(n[2], "eth0", n[1], "right"))
	if err := n[1].Bridge("bridge", "left", "right"); errors.Is(err, syscall.EOPNOTSUPP) {
		t.Skipf("needs a kernel with bridges: %v; run: modprobe bridge", err)
	} else if err != nil {
		t.Fatal(err)
	}
	must(t, n[0].Addr("eth0", "198.18.0.10/24"), n[2].Addr("eth0", "198.18.0.20/24"))
	ln, err := n[2].Listen("tcp", "198.18.0.20:80")
	must(t, err)
	serve(t, ln, "far")
	if got, want := get(t, n[0], "http://198.18.0.20:80"), "far:far\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := n[1].Bridge("other", "nobody"); err == nil {
		t.Error("an interface that is not there became a member")
	}
}

func TestInterface(t *testing.T) {
	_, client, server := pair(t)
	mac := [6]byte{2, 0, 0, 0, 0, 7}
	must(t, client.MTU("eth0", 9000), client.MAC("eth0", mac), server.Neighbour("eth0", "198.18.0.10", mac))
	must(t, client.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		must(t, err)
		if i.MTU != 9000 || !bytes.Equal(i.HardwareAddr, mac[:]) || i.Flags&net.FlagUp == 0 {
			t.Errorf("got %+v, want MTU 9000, address %x, up", i, mac)
		}
		return nil
	}))
	must(t, client.Down("eth0"))
	must(t, client.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		must(t, err)
		if i.Flags&net.FlagUp != 0 {
			t.Error("up after Down")
		}
		return nil
	}))
	// Each state is set and, where ethtool is installed, read back.
	for _, o := range []netlab.Offload{{}, {Segmentation: true, Receive: true, Checksum: true}, {Checksum: true}} {
		must(t, server.Offload("eth0", o))
		checkOffload(t, server, o)
	}
}

// checkOffload asks ethtool, a second opinion.
func checkOffload(t *testing.T, n *netlab.Namespace, o netlab.Offload) {
	t.Helper()
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Log("not checked: needs package ethtool")
		return
	}
	out, err := n.Command(t.Context(), "ethtool", "-k", "eth0").Output()
	must(t, err)
	for name, on := range map[string]bool{
		"tx-checksumming": o.Checksum, "tx-tcp-segmentation": o.Segmentation, "tx-tcp6-segmentation": o.Segmentation,
		"generic-segmentation-offload": o.Segmentation, "generic-receive-offload": o.Receive,
	} {
		want := name + ": off"
		if on {
			want = name + ": on"
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("offload %+v: ethtool does not say %q", o, want)
		}
	}
}

func TestErrors(t *testing.T) {
	lab, client, _ := pair(t)
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"foreign address", client.Addr("eth0", "192.0.2.1/24"), "set address on eth0 in client: 192.0.2.1 is not of 198.18.0.0/15 or 2001:db8::/32"},
		{"no prefix length", client.Addr("eth0", "198.18.0.9"), "set address on eth0 in client: netip.ParsePrefix"},
		{"address twice", client.Addr("eth0", "198.18.0.10/24"), "set address 198.18.0.10/24 on eth0 in client: file exists"},
		{"no interface", client.Up("eth7"), "set up on eth7 in client: route ip+net: no such network interface"},
		{"no route to the gateway", client.Route("default", "198.18.77.1"), "set route default via 198.18.77.1 in client: network is unreachable"},
		{"long name", lab.Link(client, "a-name-beyond-bounds", client, "b"), "interface names are at most 15 bytes"},
		{"name of a host", func() error { _, err := client.Dial(t.Context(), "tcp", "localhost:80"); return err }(), "dial from client: "},
		{"no command", client.Command(t.Context(), "/nowhere").Run(), "start /nowhere in client: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
				t.Errorf("got %v, want %q", tt.err, tt.want)
			}
		})
	}
}

// TestCommand runs a program of the system, which sees the namespace's interfaces only.
func TestCommand(t *testing.T) {
	_, client, _ := pair(t)
	out, err := client.Command(t.Context(), "cat", "/proc/thread-self/net/dev").CombinedOutput()
	must(t, err)
	if !bytes.Contains(out, []byte("eth0:")) || bytes.Count(out, []byte(":")) != 2 {
		t.Errorf("got %s, want lo and eth0", out)
	}
}

// TestCloseKills checks that a command and its children end with the lab.
func TestCloseKills(t *testing.T) {
	lab, client, _ := pair(t)
	c := client.Command(t.Context(), "sh", "-c", "sleep 1000 & echo started; wait")
	out, err := c.StdoutPipe()
	must(t, err, c.Start())
	if _, err := io.ReadFull(out, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	must(t, lab.Close())
	// The pipe ends when the last process that holds it is gone, the sleep included.
	if rest, err := io.ReadAll(out); err != nil || len(rest) != 0 {
		t.Errorf("got %q, %v after Close", rest, err)
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) {
		t.Errorf("got %v, want a killed command", err)
	}
	if err := client.Command(t.Context(), "true").Run(); err == nil {
		t.Error("a command starts in a closed lab")
	}
	if _, err := lab.Namespace("late"); err == nil {
		t.Error("a closed lab makes a namespace")
	}
	must(t, lab.Close())
}

// TestNothingLeft counts descriptors and goroutines after Close.
func TestNothingLeft(t *testing.T) {
	descriptors := func() int {
		es, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(es)
	}
	fds, goroutines := descriptors(), runtime.NumGoroutine()
	for range 3 {
		lab, _, _ := pair(t)
		must(t, lab.Close())
	}
	if got := descriptors(); got > fds {
		t.Errorf("%d descriptors, %d before", got, fds)
	}
	// A goroutine that has said its last word is counted until it is off its thread.
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
}

// TestOrdinaryUser runs the tests again as nobody, in a user namespace.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 || os.Getenv("NETLAB_ENTERED") != "" {
		t.Skip("needs root, to become somebody else; `go test` as an ordinary user runs the same")
	}
	newLab(t) // skips where namespaces are not permitted
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	dir, err := os.MkdirTemp("", "netlab")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "netlab.test")
	must(t, os.Chmod(dir, 0o755), os.WriteFile(binary, self, 0o755))
	for _, tt := range []struct {
		name string
		env  []string
		want string
	}{
		{"user namespaces", nil, "--- PASS: TestHTTP"},
		// The mark of Enter without its namespace: the kernel's refusal comes through.
		{"no namespaces", []string{"NETLAB_ENTERED=1"}, "needs root or user namespaces: network namespaces are not permitted here: unshare: operation not permitted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.count=1")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), tt.env...)
			runAs(cmd, 65534)
			out, err := cmd.CombinedOutput()
			if err != nil && strings.Contains(string(out), netlab.ErrNotPermitted.Error()) {
				t.Skipf("needs user namespaces for ordinary users:\n%s", out)
			}
			if err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v, want %q in:\n%s", err, tt.want, out)
			}
		})
	}
}

// Example is the order of calls: enter, make, link, address, use, close.
func Example() {
	code, done, err := netlab.Enter()
	if done {
		os.Exit(code)
	}
	if err != nil {
		fmt.Println("server-1") // neither kind of namespace is permitted: the caller does without
		return
	}
	lab, err := netlab.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lab.Close()
	client, _ := lab.Namespace("client")
	server, _ := lab.Namespace("server")
	if err := errors.Join(
		lab.Link(client, "eth0", server, "eth0"),
		client.Addr("eth0", "198.18.0.10/24"),
		server.Addr("eth0", "198.18.0.20/24"),
	); err != nil {
		fmt.Println(err)
		return
	}
	ln, err := server.Listen("tcp", "198.18.0.20:80")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error)
	go func() { served <- httpserver.Serve(ctx, ln, "server-1") }()
	c := http.Client{Transport: &http.Transport{DialContext: client.Dial, DisableKeepAlives: true}}
	res, err := c.Get("http://198.18.0.20/")
	if err != nil {
		fmt.Println(err)
		return
	}
	io.Copy(os.Stdout, res.Body)
	res.Body.Close()
	cancel()
	<-served
	// Output: server-1
}
