package signing

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/bitstream"
	"splicenic/bitstream/container"
	"splicenic/regs"
	"splicenic/tools/control"
)

func exit(err error) int {
	if f, ok := errors.AsType[*control.Failure](err); ok {
		return f.Exit
	}
	return -1
}

func TestKeygen(t *testing.T) {
	base := filepath.Join(t.TempDir(), "release")
	p, err := Keygen(base)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := os.Stat(p.Private); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("private key: %v, %v", s.Mode(), err)
	}
	k, err := PrivateKey(p.Private)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := Trusted([]string{p.Public})
	if err != nil || len(keys) != 1 || !keys[0].Equal(k.Public()) || container.ID(keys[0]) != p.ID {
		t.Errorf("public key: %v, %v", keys, err)
	}
	before, _ := os.ReadFile(p.Private)
	if _, err := Keygen(base); exit(err) != control.ExitRefused {
		t.Errorf("keys made twice: %v", err)
	}
	if after, _ := os.ReadFile(p.Private); !bytes.Equal(before, after) {
		t.Error("the key was overwritten")
	}
	if err := os.Remove(p.Public); err != nil {
		t.Fatal(err)
	}
	if _, err := Keygen(base); exit(err) != control.ExitRefused {
		t.Errorf("a private key without its public one: %v", err)
	}
	if _, err := os.Stat(p.Public); err == nil {
		t.Error("half a pair was left")
	}
}

// TestWrongFiles gives the readers of keys whatever lies about.
func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	p, err := Keygen(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, big := file("empty", nil), file("big", make([]byte, maxKeyFile+1))
	image := file("top.bit", []byte("\x00\x09\x0f\xf0\x0f\xf0\x0f\xf0\x0f\xf0\x00\x00\x01a\x00\x04top\x00"))
	rsa := file("rsa.key", []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, private, public string }{
		{dir, "got a directory, wanted a private key", "got a directory, wanted a public key"},
		{"/dev/null", "got a device node, wanted a private key", "got a device node, wanted a public key"},
		{"/dev/zero", "got a device node", "got a device node"},
		{pipe, "got a pipe, wanted a private key", "got a pipe, wanted a public key"},
		{empty, "got an empty file, wanted a private key", "got an empty file, wanted a public key"},
		{big, "got a file of format blank, of 65537 bytes, wanted a private key", "wanted a public key"},
		{image, "got a file of format xilinx-bit, wanted a private key", "got a file of format xilinx-bit, wanted a public key"},
		{rsa, "got a private key that cannot be used: ", "got a private key, wanted a public key"},
		{filepath.Join(dir, "none"), "no such file", "no such file"},
		{p.Private, "", "got a private key, wanted a public key"},
		{p.Public, "got a public key, wanted a private key", ""},
	} {
		_, err := PrivateKey(c.file)
		_, err2 := Trusted([]string{c.file})
		for i, x := range []struct {
			err  error
			want string
		}{{err, c.private}, {err2, c.public}} {
			switch {
			case x.want == "" && x.err != nil:
				t.Errorf("%s (%d): %v", c.file, i, x.err)
			case x.want != "" && (exit(x.err) != control.ExitUsage || !strings.Contains(x.err.Error(), x.want)):
				t.Errorf("%s (%d): got %v, want %q", c.file, i, x.err, x.want)
			}
		}
	}
}

func TestSign(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	user := uint32(0xc0ffee01)
	img := func() *bitstream.Image {
		return &bitstream.Image{
			Format: bitstream.XilinxBit, Design: "top;UserID=0XFFFFFFFF", Whole: true, UserCode: &user,
			IDCodes: []bitstream.IDCode{{Value: 0x13636093, Names: []string{"XC7A200T"}}}, Check: bitstream.Integrity{State: bitstream.Valid, Checks: 2},
			Segments: []bitstream.Segment{{Data: bytes.Repeat([]byte{1, 2, 3, 4}, 40000)}},
		}
	}
	r := Request{Version: "1.2.3", Board: 9, Rollback: 4, Created: time.Unix(0, 0)}
	b, err := Sign(img(), r, key)
	if err != nil {
		t.Fatal(err)
	}
	f, err := container.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	m := f.Manifest
	if err := f.Verify([]ed25519.PublicKey{key.Public().(ed25519.PublicKey)}); err != nil {
		t.Error(err)
	}
	if m.Name != "top" || m.Part != "xc7a200t" || m.IDCode != 0x03636093 || m.UserCode != user || m.Board != 9 || m.Rollback != 4 || m.DataPathDigest != regs.DataPathDigest256 ||
		m.Source != "xilinx-bit: top" || m.Created != "1970-01-01T00:00:00Z" || len(m.Sectors) != 3 {
		t.Errorf("manifest %+v", m)
	}
	for say, change := range map[string]func(i *bitstream.Image, r *Request){
		"signed container": func(i *bitstream.Image, _ *Request) { i.Format = bitstream.SPL },
		"checks fail":      func(i *bitstream.Image, _ *Request) { i.Check.State = bitstream.Invalid },
		"not whole":        func(i *bitstream.Image, _ *Request) { i.Whole = false },
		"partial":          func(i *bitstream.Image, _ *Request) { i.Partial = true },
		"not for writing":  func(i *bitstream.Image, _ *Request) { i.Segments = nil },
		"2 regions":        func(i *bitstream.Image, _ *Request) { i.Segments = append(i.Segments, i.Segments[0]) },
		"address 0x10000":  func(i *bitstream.Image, _ *Request) { i.Segments[0].Address = 0x10000 },
		"no part":          func(i *bitstream.Image, _ *Request) { i.IDCodes = nil },
		"no name":          func(i *bitstream.Image, _ *Request) { i.Design = "" },
		"major.minor":      func(_ *bitstream.Image, r *Request) { r.Version = "1" },
		"64 hexadecimal":   func(_ *bitstream.Image, r *Request) { r.DataPathDigest = "12" },
	} {
		i, r := img(), r
		change(i, &r)
		if _, err := Sign(i, r, key); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("got %v, want %q", err, say)
		}
	}
}

func TestVerify(t *testing.T) {
	p, err := Keygen(filepath.Join(t.TempDir(), "k"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := PrivateKey(p.Private)
	if err != nil {
		t.Fatal(err)
	}
	raw := &bitstream.Image{
		Format: bitstream.XilinxBin, Design: "top", Whole: true, IDCodes: []bitstream.IDCode{{Value: 0x03636093}},
		Check: bitstream.Integrity{State: bitstream.Valid, Checks: 1}, Segments: []bitstream.Segment{{Data: make([]byte, 100)}},
	}
	b, err := Sign(raw, Request{Version: "1.0.0", Board: 1, Created: time.Unix(0, 0)}, key)
	if err != nil {
		t.Fatal(err)
	}
	img, err := bitstream.Read(bytes.NewReader(b), bitstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		img    *bitstream.Image
		w      Wanted
		accept bool
		say    string
	}{
		{"signed, with its key", img, Wanted{Keys: []string{p.Public}, IDCode: "0x13636093", Board: 1}, true, ""},
		{"another part", img, Wanted{Keys: []string{p.Public}, IDCode: "0362d093"}, false, "0x0362d093"},
		{"another board", img, Wanted{Keys: []string{p.Public}, Board: 2}, false, "board 2"},
		{"not signed", raw, Wanted{Keys: []string{p.Public}}, false, "not signed"},
		{"not signed, and that is well", raw, Wanted{Keys: []string{p.Public}, Unsigned: true}, true, ""},
	} {
		v, err := Verify("x", c.img, c.w)
		if err != nil || v.Accepted != c.accept || !strings.Contains(v.Reason(), c.say) {
			t.Errorf("%s: %+v, %v", c.name, v, err)
		}
		var text strings.Builder
		Text(&text, v)
		if strings.Contains(text.String(), ", accepted\n") != c.accept {
			t.Errorf("%s: %s", c.name, text.String())
		}
	}
	for _, w := range []Wanted{{IDCode: "xyz"}, {ForHost: "1"}, {Keys: []string{p.Private}}} {
		if _, err := Verify("x", raw, w); exit(err) != control.ExitUsage {
			t.Errorf("%+v: %v", w, err)
		}
	}
}
