package container

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// example is a container of n payload bytes.
func example(t testing.TB, n int, change func(m *Manifest)) []byte {
	t.Helper()
	payload := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range payload {
		payload[i] = byte(r.Uint32())
	}
	m := Manifest{
		Name: "example", Version: Version{1, 2, 3}, Board: 1, Part: "xc7a200t", IDCode: 0x03636093, UserCode: 7,
		ShellDigest: strings.Repeat("0a", 32), DataPathDigest: strings.Repeat("0b", 32), MinHost: Version{1, 0, 0},
		Rollback: 4, Created: "2026-01-02T03:04:05Z", Source: "xilinx-bit: example", SectorBytes: 4096,
	}
	if change != nil {
		change(&m)
	}
	b, err := Sign(m, payload, key(1))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{1, 4095, 4096, 4097, 20000} {
		b := example(t, n, nil)
		f, err := Open(b)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if err := f.Verify([]ed25519.PublicKey{public(key(2)), public(key(1))}); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		if f.Manifest.Version.String() != "1.2.3" || len(f.Payload) != n || len(f.Manifest.Sectors) != (n+4095)/4096 {
			t.Errorf("%d bytes: manifest %+v with a payload of %d", n, f.Manifest, len(f.Payload))
		}
	}
}

// TestEveryBit turns over each bit of a small container: it never verifies again.
func TestEveryBit(t *testing.T) {
	b := example(t, 5000, nil)
	trusted := []ed25519.PublicKey{public(key(1))}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if f, err := Open(b); err == nil && f.Verify(trusted) == nil {
				t.Errorf("bit %d of byte %d turned over: accepted", bit, i)
			}
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		if f, err := Open(b[:n]); err == nil && f.Verify(trusted) == nil {
			t.Errorf("cut after %d bytes: accepted", n)
		}
	}
	if f, err := Open(append(b, 0)); err == nil && f.Verify(trusted) == nil {
		t.Error("a byte behind the end: accepted")
	}
}

func TestVerify(t *testing.T) {
	b := example(t, 9000, nil)
	verify := func(b []byte, keys ...ed25519.PublicKey) error {
		f, err := Open(b)
		if err != nil {
			return err
		}
		return f.Verify(keys)
	}
	if err := verify(b); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "trusted: none") {
		t.Errorf("without keys: %v", err)
	}
	if err := verify(b, public(key(2))); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), ID(public(key(1)))) {
		t.Errorf("with another key: %v", err)
	}
	m := int(binary.LittleEndian.Uint32(b[12:]))
	other := bytes.Clone(b)
	copy(other[16+m:], public(key(2))) // somebody puts a trusted key into a container of their own
	if err := verify(other, public(key(2))); !errors.Is(err, ErrSignature) {
		t.Errorf("with an exchanged key: %v", err)
	}
	other = bytes.Clone(b)
	other[len(other)-1] ^= 1
	if err := verify(other, public(key(1))); !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), "sector 2 at 0x2000") {
		t.Errorf("with a changed payload: %v", err)
	}
}

func TestMalformed(t *testing.T) {
	b := example(t, 100, nil)
	m := int(binary.LittleEndian.Uint32(b[12:]))
	text := string(b[16 : 16+m])
	with := func(manifest string) []byte {
		x := append([]byte(nil), b[:12]...)
		x = binary.LittleEndian.AppendUint32(x, uint32(len(manifest)))
		return append(append(x, manifest...), b[16+m:]...)
	}
	for _, c := range []struct {
		name string
		data []byte
		say  string
	}{
		{"empty", nil, "not an .spl container"},
		{"another file", []byte("\x7fELF"), "not an .spl container"},
		{"text mode", []byte("\x89SPL\n\x1a\n"), "line ends"},
		{"head cut", b[:12], "within its head"},
		{"layout", append(append([]byte(Magic), 2, 0, 0, 0), b[12:]...), "layout 2"},
		{"huge manifest", append(append([]byte(nil), b[:12]...), 0xff, 0xff, 0xff, 0xff), "4294967295"},
		{"manifest cut", b[:40], "before its payload"},
		{"unknown field", with(`{"surprise":1,` + text[1:]), "surprise"},
		{"doubled field", with(`{"name":"a",` + text[1:]), "canonical"},
		{"other case", with(strings.Replace(text, `"board"`, `"Board"`, 1)), "canonical"},
		{"spaces", with(strings.Replace(text, `":`, `": `, 1)), "canonical"},
		{"trailing text", with(text + "{}"), "canonical"},
		{"not JSON", with("nonsense"), "manifest"},
		{"payload size", with(strings.Replace(text, `"bytes":100`, `"bytes":101`, 1)), "100 bytes, the manifest says 101"},
		{"version", with(strings.Replace(text, `"1.2.3"`, `"1.2"`, 1)), "major.minor.patch"},
		{"sector", with(strings.Replace(text, `"sector_bytes":4096`, `"sector_bytes":4097`, 1)), "sector_bytes"},
		{"digest", with(strings.Replace(text, strings.Repeat("0a", 32), strings.Repeat("0A", 32), 1)), "shell_digest"},
	} {
		_, err := Open(c.data)
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.say)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	for say, change := range map[string]func(m *Manifest){
		"name":         func(m *Manifest) { m.Name = strings.Repeat("x", 33) },
		"sector_bytes": func(m *Manifest) { m.SectorBytes = 0 },
		"created":      func(m *Manifest) { m.Created = "today" },
	} {
		m := Manifest{Name: "n", ShellDigest: strings.Repeat("00", 32), DataPathDigest: strings.Repeat("00", 32), Created: "2026-01-02T03:04:05Z", SectorBytes: 4096}
		change(&m)
		if _, err := Sign(m, []byte{1}, key(1)); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("got %v, want %q", err, say)
		}
	}
	m := Manifest{Name: "n", ShellDigest: strings.Repeat("00", 32), DataPathDigest: strings.Repeat("00", 32), Created: "2026-01-02T03:04:05Z", SectorBytes: 4096}
	if _, err := Sign(m, nil, key(1)); err == nil || !strings.Contains(err.Error(), "bytes is 0") {
		t.Errorf("an empty payload: %v", err)
	}
}

func TestVersion(t *testing.T) {
	for s, want := range map[string]string{"1.2.3": "1.2.3", "v0.0.0": "0.0.0", "127.255.65535": "127.255.65535", "128.0.0": "", "1.2": "", "1.02.3": "", "1.2.3.4": "", "1.2.-3": "", "": "", "1.+2.3": ""} {
		v, err := ParseVersion(s)
		if (err == nil) != (want != "") || err == nil && v.String() != want {
			t.Errorf("%q: %v, %v", s, v, err)
		}
	}
	order := []Version{{0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {1, 0, 0}, {1, 0, 9}}
	for i := range order {
		for j := range order {
			if order[i].Less(order[j]) != (i < j) {
				t.Errorf("%v less than %v: %v", order[i], order[j], i >= j)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	private, pub, err := MarshalKey(key(1))
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParsePrivateKey(private)
	if err != nil || !k.Equal(key(1)) {
		t.Errorf("private key: %v", err)
	}
	_, other, _ := MarshalKey(key(2))
	keys, err := ParsePublicKeys(append(bytes.Clone(pub), other...))
	if err != nil || len(keys) != 2 || !keys[1].Equal(public(key(2))) {
		t.Errorf("public keys: %d, %v", len(keys), err)
	}
	if _, err := ParsePublicKeys(private); err == nil || !strings.Contains(err.Error(), `got PEM block "PRIVATE KEY"`) {
		t.Errorf("a private key as a public one: %v", err)
	}
	if _, err := ParsePrivateKey(append(bytes.Clone(private), private...)); err == nil {
		t.Error("two private keys were accepted")
	}
	if _, err := ParsePublicKeys(append(bytes.Clone(pub), "rest"...)); err == nil {
		t.Error("text after the key was accepted")
	}
	if _, err := ParsePublicKeys(nil); err == nil {
		t.Error("an empty file was accepted")
	}
}

// FuzzOpen opens anything: it never panics, and what verifies is what was signed.
func FuzzOpen(f *testing.F) {
	b := example(f, 300, nil)
	f.Add(b)
	f.Add(b[:50])
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Open(data)
		if err != nil {
			return
		}
		if _, err := json.Marshal(x.Manifest); err != nil {
			t.Fatal(err)
		}
		if x.Verify([]ed25519.PublicKey{public(key(1))}) == nil && !bytes.Equal(data, b) {
			t.Error("a container that nobody signed verifies")
		}
	})
}

// FuzzKeys reads anything as keys.
func FuzzKeys(f *testing.F) {
	private, pub, _ := MarshalKey(key(1))
	f.Add(private)
	f.Add(pub)
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = ParsePrivateKey(text)
		_, _ = ParsePublicKeys(text)
	})
}

// TestForeignTools reads a key that another tool wrote.
func TestForeignTools(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "openssl.pem")) // openssl genpkey -algorithm ed25519
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParsePrivateKey(text); err != nil {
		t.Error(err)
	}
}
