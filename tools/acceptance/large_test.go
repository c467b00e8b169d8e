package acceptance

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"splicenic/tools/netlab"
)

// stream is n bytes that depend on their seed alone.
func stream(seed byte, n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), n)
}

func sum(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }

// streamSum is the hash of a stream.
func streamSum(t *testing.T, seed byte, n int64) string {
	t.Helper()
	h := sha256.New()
	_, err := io.Copy(h, stream(seed, n))
	must(t, err)
	return sum(h)
}

// fileServer answers GET with a stream and PUT with the hash of what it got.
type fileServer struct{ bytes int64 }

func (s *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	if r.Method == http.MethodPut {
		if _, err := io.Copy(h, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, sum(h))
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(s.bytes, 10))
	_, _ = io.Copy(w, stream(1, s.bytes))
}

// TestLargeTransfers moves a large file each way through a splice, with the kernel's segmentation offload on and off at
// each end, and compares hashes.
func TestLargeTransfers(t *testing.T) {
	bytes := int64(16 << 20)
	if long {
		bytes = 1 << 30
	}
	p := start(t, configuration)
	server := &http.Server{Handler: &fileServer{bytes}, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	for _, a := range []string{"198.18.1.11:80", "[2001:db8:1::11]:80"} {
		ln, err := p.servers.Listen("tcp", a)
		must(t, err)
		go func() { _ = server.Serve(ln) }()
	}
	down, up := streamSum(t, 1, bytes), streamSum(t, 2, bytes)

	on, off := netlab.Offload{Segmentation: true, Receive: true, Checksum: true}, netlab.Offload{}
	for _, tt := range []struct {
		name           string
		vip            string
		client, server netlab.Offload
	}{
		{"offload on at both ends", "198.18.0.80", on, on},
		{"offload off at the client", "198.18.0.80", off, on},
		{"offload off at the server", "198.18.0.80", on, off},
		{"offload off at both ends", "198.18.0.80", off, off},
		{"offload on at both ends, IPv6", "[2001:db8::80]", on, on},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must(t, p.client.Offload("eth0", tt.client))
			must(t, p.servers.Offload("eth0", tt.server))
			c := &http.Client{Transport: &http.Transport{DialContext: p.client.Dial, DisableKeepAlives: true}, Timeout: 10 * time.Minute}
			begin := time.Now()
			r, err := c.Get("http://" + tt.vip + "/file")
			must(t, err)
			h := sha256.New()
			n, err := io.Copy(h, r.Body)
			r.Body.Close()
			must(t, err)
			if n != bytes || sum(h) != down {
				t.Errorf("download: got %d bytes with sha256 %s, want %d with %s", n, sum(h), bytes, down)
			}
			downTime := time.Since(begin)

			begin = time.Now()
			q, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "http://"+tt.vip+"/file", stream(2, bytes))
			must(t, err)
			q.ContentLength = bytes
			r, err = c.Do(q)
			must(t, err)
			body, err := io.ReadAll(r.Body)
			r.Body.Close()
			must(t, err)
			if string(body) != up {
				t.Errorf("upload: the server got sha256 %s, want %s", body, up)
			}
			t.Logf("%d MiB down in %v, up in %v", bytes>>20, downTime.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		})
	}
	p.atRest()
}
