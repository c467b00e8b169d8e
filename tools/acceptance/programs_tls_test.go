package acceptance

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A certificate is good for every name the tests use.
type certificate struct {
	tls.Certificate
	pem  string // certificate and key
	pool *x509.CertPool
}

func selfSigned(t *testing.T) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"a.example", "*.b.example", "other.example"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	c := &certificate{Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool: x509.NewCertPool()}
	c.pool.AddCert(leaf)
	c.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return c
}

// serveTLS says its name to whoever completes a handshake, and how that came about.
func (p *product) serveTLS(address, name string, cert *certificate) {
	p.serve(address, func(c *net.TCPConn) error {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.Certificate}, NextProtos: []string{"acme-tls/1", "h2", "http/1.1"}})
		if err := s.Handshake(); err != nil {
			return err
		}
		state := s.ConnectionState()
		if _, err := fmt.Fprintf(s, "%s %s %v\n", name, state.ServerName, state.CurveID); err != nil {
			return err
		}
		return s.Close()
	})
}

// A cutConn sends its first bytes, which are a ClientHello, in pieces that end at the cuts, each when the one before it has
// been acknowledged.
type cutConn struct {
	*net.TCPConn
	cuts  func(n int) []int
	hello int // bytes
}

func (c *cutConn) Write(b []byte) (n int, err error) {
	if c.hello != 0 {
		return c.TCPConn.Write(b)
	}
	c.hello = len(b)
	for _, end := range append(c.cuts(len(b)), len(b)) {
		if err := acknowledged(c.TCPConn); err != nil {
			return n, err
		}
		k, err := c.TCPConn.Write(b[n:end])
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// testCutHello cuts the hello of crypto/tls, which has a share of a post-quantum key and is longer than a segment, at each
// of its bytes.
func (p *product) testCutHello(t *testing.T, cert *certificate) {
	shake := func(cuts func(n int) []int) (hello int, err error) {
		conn, err := p.client.Dial(context.Background(), "tcp", "198.18.0.80:443")
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		cut := &cutConn{TCPConn: conn.(*net.TCPConn), cuts: cuts}
		c := tls.Client(cut, &tls.Config{ServerName: "a.example", RootCAs: cert.pool})
		all, err := io.ReadAll(c)
		if want := "go a.example X25519MLKEM768\n"; err == nil && string(all) != want {
			err = fmt.Errorf("the server said %q, want %q", all, want)
		}
		return cut.hello, err
	}
	size, err := shake(func(n int) (all []int) {
		for i := 1; i < n; i++ {
			all = append(all, i)
		}
		return all
	})
	if err != nil {
		t.Fatalf("one byte per segment: %v", err)
	}
	if size < 1200 {
		t.Fatalf("the hello has %d bytes: no post-quantum key share", size)
	}
	room := make(chan struct{}, 32)
	var running sync.WaitGroup
	for i := 1; i < size; i++ {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			if _, err := shake(func(n int) []int { return []int{min(i, n-1)} }); err != nil {
				t.Errorf("cut at %d: %v", i, err)
			}
		})
		if t.Failed() {
			break
		}
	}
	running.Wait()
	t.Logf("a hello of %d bytes", size)
}

// testOpenSSL has openssl ask for names that lead to different servers, or nowhere.
func (p *product) testOpenSSL(t *testing.T) {
	for _, tt := range []struct {
		name string
		port string
		args []string
		want string // among what it prints
	}{
		{"name of nginx", "443", []string{"-servername", "www.b.example"}, "tls-nginx 198.18.0.10 "},
		{"name in capitals", "443", []string{"-servername", "WWW.B.Example"}, "tls-nginx 198.18.0.10 "},
		{"name of Go", "443", []string{"-servername", "a.example"}, "go a.example "},
		{"no name", "443", []string{"-noservername"}, "other  "},
		{"another name", "443", []string{"-servername", "other.example"}, "other other.example "},
		{"protocol", "443", []string{"-servername", "other.example", "-alpn", "acme-tls/1"}, "other other.example "},
		{"TLS 1.2", "443", []string{"-servername", "www.b.example", "-tls1_2"}, "tls-nginx 198.18.0.10 "},
		{"small records", "443", []string{"-servername", "www.b.example", "-max_send_frag", "512"}, "tls-nginx 198.18.0.10 "},
		{"name that nobody has", "444", []string{"-servername", "c.example"}, "unrecognized name"},
		{"no name where nobody has it", "444", []string{"-noservername"}, "unrecognized name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			cmd := p.client.Command(ctx, "openssl", append([]string{"s_client", "-connect", "198.18.0.80:" + tt.port, "-quiet", "-ign_eof"}, tt.args...)...)
			cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			out, err := cmd.CombinedOutput()
			if !bytes.Contains(out, []byte(tt.want)) {
				t.Errorf("openssl said (%v) %q, want %q in it", err, out, tt.want)
			}
		})
	}
	t.Run("curl", func(t *testing.T) {
		got := p.in(p.client, t, "curl", "-sS", "--max-time", "20", "--cacert", p.dir+"/cert.pem", "--connect-to", "::198.18.0.80:443", "https://www.b.example/x")
		if !strings.HasPrefix(got, "tls-nginx 198.18.0.10 ") {
			t.Errorf("got %q", got)
		}
	})
}
