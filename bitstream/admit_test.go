package bitstream

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"splicenic/bitstream/container"
)

func TestAdmit(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	shell, path := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	manifest := container.Manifest{
		Name: "top", Version: container.Version{Major: 1}, Board: 7, Part: "xc7a200t", IDCode: 0x03636093, ShellDigest: shell, DataPathDigest: path,
		MinHost: container.Version{Major: 2}, Rollback: 5, Created: "2026-01-02T03:04:05Z", SectorBytes: 4096,
	}
	public := []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}
	card := Admission{
		Target: Target{IDCode: 0x13636093, SlotBytes: 1 << 20}, Board: 7, Trusted: public, Floor: 5, Host: container.Version{Major: 2},
		ShellDigest: shell, DataPathDigest: path,
	}
	for _, c := range []struct {
		name     string
		manifest func(m *container.Manifest)
		card     func(a *Admission)
		damage   bool
		rule     string   // refused by; empty: not refused
		say      []string // both values
	}{
		{name: "as it should be"},
		{name: "another board", manifest: func(m *container.Manifest) { m.Board = 8 }, rule: "board", say: []string{"board 8", "board 7"}},
		{name: "another part", manifest: func(m *container.Manifest) { m.IDCode = 0x0362d093 }, rule: "idcode", say: []string{"0x0362d093", "0x13636093"}},
		{name: "another data path", manifest: func(m *container.Manifest) { m.DataPathDigest = shell }, rule: "data-path digest", say: []string{shell, path}},
		{name: "another data path for a later host", manifest: func(m *container.Manifest) { m.DataPathDigest, m.MinHost.Major = shell, 3 }, card: func(a *Admission) { a.ForHost = &container.Version{Major: 3} }},
		{name: "for a host that is too old as well", manifest: func(m *container.Manifest) { m.DataPathDigest, m.MinHost.Major = shell, 4 }, card: func(a *Admission) { a.ForHost = &container.Version{Major: 3} }, rule: "host version", say: []string{"4.0.0", "3.0.0"}},
		{name: "for a host that is too old, of the same data path", card: func(a *Admission) { a.ForHost = &container.Version{Major: 1} }, rule: "host version", say: []string{"2.0.0", "1.0.0"}},
		{name: "another shell", manifest: func(m *container.Manifest) { m.ShellDigest = path }, rule: "shell digest", say: []string{path, shell}},
		{name: "a later host", manifest: func(m *container.Manifest) { m.MinHost.Patch = 1 }, rule: "host version", say: []string{"2.0.1", "2.0.0"}},
		{name: "a development host", manifest: func(m *container.Manifest) { m.MinHost.Patch = 1 }, card: func(a *Admission) { a.Host = container.Version{} }},
		{name: "rollback", card: func(a *Admission) { a.Floor = 6 }, rule: "rollback", say: []string{"is 5", "took 6"}},
		{name: "another key", card: func(a *Admission) { a.Trusted = []ed25519.PublicKey{other.Public().(ed25519.PublicKey)} }, rule: "signature", say: []string{container.ID(public[0]), container.ID(other.Public().(ed25519.PublicKey))}},
		{name: "no key", card: func(a *Admission) { a.Trusted = nil }, rule: "signature", say: []string{container.ID(public[0]), "none"}},
		{name: "another key, and that is well", card: func(a *Admission) { a.Trusted, a.Unsigned = nil, true }},
		{name: "a changed payload of a stranger", card: func(a *Admission) { a.Trusted, a.Unsigned = nil, true }, damage: true, rule: "signature", say: []string{"none"}},
		{name: "a changed payload", damage: true, rule: "digest", say: []string{"SHA-256"}},
		{name: "too large", card: func(a *Admission) { a.SlotBytes = 4096 }, rule: "slot", say: []string{"10000", "4096"}},
	} {
		m, a := manifest, card
		if c.manifest != nil {
			c.manifest(&m)
		}
		if c.card != nil {
			c.card(&a)
		}
		b, err := container.Sign(m, bytes.Repeat([]byte{0x5a}, 10000), key)
		if err != nil {
			t.Fatal(err)
		}
		if c.damage {
			b[len(b)-1] ^= 1
		}
		img, err := Read(bytes.NewReader(b), Options{Name: "x.spl"})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		findings := Admit(img, a)
		if Refused(findings) != (c.rule != "") {
			t.Errorf("%s: %+v", c.name, findings)
			continue
		}
		for _, f := range findings {
			if f.Severity != Refuse || f.Rule != c.rule {
				continue
			}
			for _, s := range c.say {
				if !strings.Contains(f.Text, s) {
					t.Errorf("%s: %q does not say %q", c.name, f.Text, s)
				}
			}
			c.rule = ""
		}
		if c.rule != "" {
			t.Errorf("%s: no finding of %s: %+v", c.name, c.rule, findings)
		}
	}
}

// TestAdmitDevelopmentHost: a build without a version says that it could not compare it.
func TestAdmitDevelopmentHost(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	zeros := strings.Repeat("00", 32)
	for _, min := range []container.Version{{}, {Major: 9}} {
		b, err := container.Sign(container.Manifest{Name: "top", Version: container.Version{Major: 1}, Board: 1, Part: "xc7a200t", IDCode: 0x03636093,
			ShellDigest: zeros, DataPathDigest: zeros, MinHost: min, Created: "2026-01-02T03:04:05Z", SectorBytes: 4096}, []byte("image"), key)
		if err != nil {
			t.Fatal(err)
		}
		img, err := Read(bytes.NewReader(b), Options{})
		if err != nil {
			t.Fatal(err)
		}
		said := false
		for _, f := range Admit(img, Admission{ShellDigest: zeros, DataPathDigest: zeros}) {
			said = said || f.Severity == Skipped && f.Rule == "host version" && strings.Contains(f.Text, "9.0.0")
		}
		if want := min.Major > 0; said != want {
			t.Errorf("an image that needs host %v: said %v, want %v", min, said, want)
		}
	}
}

// TestAdmitUnsigned takes an image that nobody signed only where that is asked for.
func TestAdmitUnsigned(t *testing.T) {
	img := &Image{Format: XilinxBin, Whole: true, IDCodes: []IDCode{{Value: 0x03636093}}, Check: Integrity{State: Valid, Checks: 1}, Segments: []Segment{{Data: make([]byte, 10)}}}
	a := Admission{Target: Target{IDCode: 0x13636093, SlotBytes: 4096}}
	if f := Admit(img, a); !Refused(f) {
		t.Errorf("without a word: %+v", f)
	}
	a.Unsigned = true
	if f := Admit(img, a); Refused(f) || len(f) == 0 {
		t.Errorf("with --unsigned: %+v", f)
	}
}
