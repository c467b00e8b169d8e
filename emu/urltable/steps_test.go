package urltable

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostile are heads and hellos of about n bytes that would be slow to read where a byte is looked at again and again.
var hostile = map[string]func(n int) string{
	"fields": func(n int) string { return head("GET / HTTP/1.1", "Host: b", strings.Repeat("x: y\r\n", n/6)+"z:") },
	"long fields": func(n int) string {
		return head("GET / HTTP/1.1", "Host: b", strings.Repeat("x: "+strings.Repeat("y", n/100)+"\r\n", 100)+"z:")
	},
	"value":            func(n int) string { return head("GET / HTTP/1.1", "Host: b", "X: "+strings.Repeat("a", n)) },
	"tabs":             func(n int) string { return head("GET / HTTP/1.1", "Host: b", "X: a"+strings.Repeat("\t", n)) },
	"blanks":           func(n int) string { return head("GET / HTTP/1.1", "Host: b", "X:"+strings.Repeat(" ", n)) },
	"tabs and letters": func(n int) string { return head("GET / HTTP/1.1", "Host: b", "X: "+strings.Repeat("\ta", n/2)) },
	"name":             func(n int) string { return head("GET / HTTP/1.1", "Host: b", strings.Repeat("X", n)+": y") },
	"method":           func(n int) string { return head(strings.Repeat("X", n)+" / HTTP/1.1", "Host: b") },
	"host":             func(n int) string { return head("GET / HTTP/1.1", "Host: "+strings.Repeat("%61", n/3)) },
	"dots in host":     func(n int) string { return head("GET / HTTP/1.1", "Host: "+strings.Repeat(".", n)) },
	"port":             func(n int) string { return head("GET / HTTP/1.1", "Host: b:"+strings.Repeat("0", n)) },
	"literal":          func(n int) string { return head("GET / HTTP/1.1", "Host: ["+strings.Repeat("0", n)+"]") },
	"absolute form":    func(n int) string { return head("GET http://"+strings.Repeat("b", n)+" HTTP/1.1", "Host: b") },
	"length": func(n int) string {
		return head("GET / HTTP/1.1", "Host: b", "Content-Length: "+strings.Repeat("0", n))
	},
	"codings": func(n int) string {
		return head("GET / HTTP/1.1", "Host: b", "Transfer-Encoding: "+strings.Repeat(", ", n/2)+"chunked")
	},
	"blanks in codings": func(n int) string {
		return head("GET / HTTP/1.1", "Host: b", "Transfer-Encoding: "+strings.Repeat(" \t", n/2)+"x"+strings.Repeat(" ", n/2)+",chunked")
	},
	"path":        func(n int) string { return head("GET /"+strings.Repeat("a", n)+" HTTP/1.1", "Host: b") },
	"query":       func(n int) string { return head("GET /?"+strings.Repeat("a=b&", n/4)+" HTTP/1.1", "Host: b") },
	"up and down": func(n int) string { return head("GET "+strings.Repeat("/a/..", n/5)+" HTTP/1.1", "Host: b") },
	"down and up": func(n int) string {
		return head("GET "+strings.Repeat("/a", 31)+strings.Repeat("/%2e%2e/a", n/9)+" HTTP/1.1", "Host: b")
	},
	"dots":             func(n int) string { return head("GET "+strings.Repeat("/.", n/2)+" HTTP/1.1", "Host: b") },
	"above the root":   func(n int) string { return head("GET "+strings.Repeat("/..", n/3)+" HTTP/1.1", "Host: b") },
	"escapes":          func(n int) string { return head("GET /"+strings.Repeat("%2F", n/3)+" HTTP/1.1", "Host: b") },
	"carriage returns": func(n int) string { return "GET /" + strings.Repeat("\r", n) + "\n" },
	"hello":            func(n int) string { return string(whole(sni("b.example"), extension(51, make([]byte, n)))) },
	"small records": func(n int) string {
		return string(records(message(clientHello, body(sni("b.example"), extension(51, make([]byte, n/6)))), 1))
	},
	"extensions": func(n int) string {
		return string(whole(extension(51, nil), []byte(strings.Repeat("\x00\x33\x00\x00", n/4))))
	},
	"protocols": func(n int) string { return string(whole(alpn(strings.Fields(strings.Repeat("x ", n/2))...))) },
}

// read does with in what the card does: it looks for the end with every byte and reads what came when it is there.
func read(in []byte, r *Request, h *Hello) {
	var scanned, have uint32
	for n := 1; n <= len(in); n++ {
		if CanStartTLS(in[0]) {
			var end uint32
			if end, scanned, have = FindHello(in[:n], scanned, have); end > 0 {
				ParseHello(in[:end], h)
				return
			}
			continue
		}
		end, next := FindEnd(in[:n], int(scanned))
		if end > 0 {
			ParseHead(in[:end], r)
			return
		}
		scanned = uint32(next)
	}
}

// TestRead only reads the input of SPLICE_STEPS, for TestLinearTime.
func TestRead(t *testing.T) {
	var size int
	name, rest, ok := strings.Cut(os.Getenv("SPLICE_STEPS"), "=")
	if _, err := fmt.Sscan(rest, &size); !ok || err != nil {
		t.Skip("TestLinearTime runs it")
	}
	read([]byte(hostile[name](size)), new(Request), new(Hello))
}

// TestLinearTime counts the statements that reading a hostile input takes byte by byte, in a build that counts them for
// coverage. A byte that was looked at again by every later one would take thousands.
func TestLinearTime(t *testing.T) {
	if testing.Short() || testing.CoverMode() != "" {
		t.Skip("builds the package again; run: go test -run TestLinearTime ./emu/urltable")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "counting.test")
	if out, err := exec.Command("go", "test", "-c", "-covermode", "count", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c -covermode count: %v\n%s", err, out)
	}
	count := func(name string, size int) (statements int) {
		t.Helper()
		profile := filepath.Join(dir, "profile")
		cmd := exec.Command(binary, "-test.run", "^TestRead$", "-test.coverprofile", profile)
		cmd.Env = append(os.Environ(), fmt.Sprintf("SPLICE_STEPS=%s=%d", name, size))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		f, err := os.Open(profile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var in, times int
			if fields := strings.Fields(s.Text()); len(fields) == 3 {
				if _, err := fmt.Sscan(fields[1]+" "+fields[2], &in, &times); err != nil {
					t.Fatal(err)
				}
				statements += in * times
			}
		}
		return statements
	}
	const size, bound = 7000, 40
	fixed := count("value", 0)
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		perByte := float64(count(name, size)-fixed) / size
		if perByte > bound {
			t.Errorf("%s: %.1f statements a byte, at most %d wanted", name, perByte, bound)
		}
		t.Logf("%-18s %.1f statements a byte", name, perByte)
	}
}

// FindEnd looks at the bytes of earlier calls no more, but for the last four and empty lines in front.
func TestFindEndLooksOnce(t *testing.T) {
	for _, in := range []string{browser, "\r\n\r\n" + browser, head("GET / HTTP/1.1", "X: "+strings.Repeat("\r", 3000)), head("GET / HTTP/1.0")} {
		buf, scanned := make([]byte, 0, len(in)), 0
		for i := range len(in) {
			buf = append(buf, in[i])
			end, next := FindEnd(buf, scanned)
			if last := i == len(in)-1; (end != 0) != last {
				t.Fatalf("%.20q: end %d after %d of %d bytes", in, end, i+1, len(in))
			}
			for k := scanned; k < next-4; k++ {
				buf[k] = '\n'
			}
			if scanned == 0 && next > 4 {
				clear(buf[:next-4])
			}
			scanned = next
		}
	}
}
