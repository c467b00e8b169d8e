package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/driver/device"
)

// socketEnv makes this test binary hold a socket and say so, instead of running tests.
const socketEnv = "ADMIN_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(socketEnv); path != "" {
		if _, err := Listen(path); err != nil {
			fmt.Println("refused:", err)
			os.Exit(1)
		}
		fmt.Println("listening")
		io.Copy(io.Discard, os.Stdin) // until the test is over
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hold starts another process that tries to take a socket, and returns what it says.
func hold(t *testing.T, path string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), socketEnv+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

// TestCaseF11: a socket is taken over after a crash, and only then.
func TestCaseF11(t *testing.T) {
	t.Run("after a crash", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		cmd, said := hold(t, path)
		if said != "listening" {
			t.Fatal(said)
		}
		cmd.Process.Kill()
		cmd.Wait()
		if _, err := os.Lstat(path); err != nil {
			t.Fatalf("the crash left no socket: %v", err)
		}
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
	t.Run("two at once", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		type result struct {
			l   *Listener
			err error
		}
		results := make(chan result)
		for range 8 {
			go func() {
				l, err := Listen(path)
				results <- result{l, err}
			}()
		}
		won := 0
		for range 8 {
			r := <-results
			if r.err == nil {
				won++
				defer r.l.Close()
			} else if !errors.Is(r.err, ErrRunning) || !errors.Is(r.err, device.ErrBusy) {
				t.Errorf("a loser says %v", r.err)
			}
		}
		if won != 1 {
			t.Errorf("%d of 8 hold the socket", won)
		}
	})
	t.Run("a live one in another process", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		cmd, said := hold(t, path)
		if said != "listening" {
			t.Fatal(said)
		}
		_, err := Listen(path)
		if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), fmt.Sprint("process ", cmd.Process.Pid)) {
			t.Errorf("error %v", err)
		}
		answers(t, path)
	})
	t.Run("a stopped one", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		cmd, said := hold(t, path)
		if said != "listening" {
			t.Fatal(said)
		}
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path); !errors.Is(err, ErrRunning) {
			t.Errorf("error %v", err)
		}
		answers(t, path)
	})
	t.Run("a regular file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path); !errors.Is(err, ErrNotSocket) {
			t.Errorf("error %v", err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
			t.Errorf("the file has %q, %v", b, err)
		}
	})
	t.Run("a regular file in the lock's place", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		if err := os.WriteFile(path+".lock", []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "left alone") {
			t.Errorf("error %v", err)
		}
		if b, err := os.ReadFile(path + ".lock"); err != nil || string(b) != "precious" {
			t.Errorf("the file has %q, %v", b, err)
		}
	})
	t.Run("a live socket of somebody else", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.sock")
		other, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := Listen(path); !errors.Is(err, ErrRunning) {
			t.Errorf("error %v", err)
		}
		answers(t, path)
	})
	t.Run("after an orderly end", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "deep", "x.sock")
		for range 3 {
			l, err := Listen(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("socket %v, %v", info.Mode(), err)
			}
			l.Close()
			if err := l.Close(); err != nil {
				t.Errorf("second close: %v", err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is still there: %v", err)
			}
		}
	})
}

// TestLongPath: a path that no socket can have says so, and leaves nothing behind.
func TestLongPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", strings.Repeat("x", maxPath-len(dir)-4))
	_, err := Listen(path)
	if !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "it has 108 bytes: a socket's path has at most 107 bytes: name a shorter one") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	l, err := Listen(path[:maxPath])
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestBodyTimeout: a body that does not arrive is not waited for; one that does leaves all the time there is.
func TestBodyTimeout(t *testing.T) {
	const within = 50 * time.Millisecond
	slow := make(chan struct{})
	h := Handler(nil, nil)
	s := httptest.NewServer(hurried(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			h.ServeHTTP(w, r)
			return
		}
		io.Copy(io.Discard, r.Body)
		select { // no deadline ends it
		case <-r.Context().Done():
			t.Error("the answer was given up on")
		case <-time.After(3 * within):
		}
		close(slow)
	}), within))
	defer s.Close()
	for _, tt := range []struct{ name, request, want string }{
		{"cut off", "POST /v1/config/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"file\":", "HTTP/1.1 408 Request Timeout"},
		{"not asked for", "GET /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx", "HTTP/1.1 503 Service Unavailable"},
		{"whole", "POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", "HTTP/1.1 200 OK"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, tt.request)
			c.SetDeadline(time.Now().Add(20 * time.Second))
			got, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(got), tt.want) {
				t.Errorf("answer %q, %v", got, err)
			}
		})
	}
	<-slow
}

// answers checks that somebody still listens on a socket.
func answers(t *testing.T, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Errorf("nobody listens any more: %v", err)
		return
	}
	c.Close()
}

func TestOnlyOurUserMayAsk(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, 200, struct{}{}) })
	for _, tt := range []struct {
		name   string
		uid    any
		status int
	}{
		{"root", uint32(0), 200},
		{"ourselves", uint32(os.Getuid()), 200},
		{"somebody else", uint32(os.Getuid() + 4321), 403},
		{"unknown", nil, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := http.NewRequest("GET", "/v1/status", nil)
			r = r.WithContext(context.WithValue(context.Background(), uidKey{}, tt.uid))
			w := &recorder{header: http.Header{}}
			allow(ok).ServeHTTP(w, r)
			if w.status != tt.status {
				t.Errorf("status %d, want %d", w.status, tt.status)
			}
			var f failure
			if tt.status == 403 && (json.Unmarshal(w.body, &f) != nil || f.Error.Exit != 6 || w.header.Get("Connection") != "close") {
				t.Errorf("answer %s", w.body)
			}
		})
	}
}

type recorder struct {
	header http.Header
	status int
	body   []byte
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { r.body = append(r.body, b...); return len(b), nil }

func TestServeOverTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, 200, []string{}) }))
	}()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	resp, err := client.Get("http://runtime/v1/anything")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || string(b) != "[]\n" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("answer %d %q", resp.StatusCode, b)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestDefaultSocket(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/77")
	want := "/run/splicenic/a.sock"
	if os.Getuid() != 0 || rootIs() != 0 {
		want = "/run/user/77/splicenic/a.sock"
	}
	if got := DefaultSocket("a"); got != want {
		t.Errorf("socket %s, want %s", got, want)
	}
}

// TestOutside reads uid maps.
func TestOutside(t *testing.T) {
	for _, tt := range []struct {
		name, uidMap string
		want         int
	}{
		{"the machine", "         0          0 4294967295\n", 0},
		{"an ordinary user's", "         0       1000          1\n", 1000},
		{"several lines", "1 100000 65535\n0 1001 1\n", 1001},
		{"no root", "1000 1000 1\n", 0},
		{"empty", "", 0},
		{"nonsense", "0 x 1\n0 -7 1\n0 1\n", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := outside(tt.uidMap); got != tt.want {
				t.Errorf("user %d, want %d", got, tt.want)
			}
		})
	}
}
