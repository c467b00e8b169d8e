package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/regs"
	"splicenic/runtime/rule"
)

func TestParseState(t *testing.T) {
	const good = `{"version":1,"serial":5,"data_path":6,"banks":[{"generation":3,"digest":"ab"}],"vips":["198.18.0.80","","2001:db8::80"],"services":["web"],"groups":["app"],"servers":["198.18.1.11:80/tcp"],"next_hops":["1/5/198.18.1.11"],"rules":["web\u0000\u0000/x\u0000true"]}`
	s, err := parseState([]byte(good), plenty)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(s); err != nil || string(text) != good {
		t.Errorf("written again: %s, %v", text, err)
	}
	if s.tells(5, 6, stateBank{3, "ab"}) != true || s.tells(4, 6, stateBank{3, "ab"}) || s.tells(5, 7, stateBank{3, "ab"}) || s.tells(5, 6, stateBank{4, "ab"}) || s.tells(5, 6, stateBank{3, "ac"}) {
		t.Error("it is about another card, too, or not about its own")
	}
	for _, tt := range []struct{ name, old, new, want string }{
		{"empty", good, "", "EOF"},
		{"no JSON", good, "version: 1", "invalid character"},
		{"cut", `"rules"`, "\x00", "invalid character"},
		{"more behind it", `true"]}`, `true"]}{}`, "text after its end"},
		{"another version", `"version":1`, `"version":2`, "version 2, want 1"},
		{"unknown key", `"serial"`, `"cereal"`, "unknown field"},
		{"number too large", `"generation":3`, `"generation":4294967296`, "cannot unmarshal"},
		{"one name twice", `"",`, `"198.18.0.80",`, `vips 1 is "198.18.0.80"`},
		{"no address", `"198.18.0.80"`, `"198.18.0.800"`, "vips 0"},
		{"address in another form", `"2001:db8::80"`, `"2001:DB8::80"`, "vips 2"},
		{"no server", `:80/tcp`, `:80`, "servers 0"},
		{"no next hop", `1/5/`, `2/5/`, "next_hops 0"},
		{"no VLAN", `1/5/`, `1/4096/`, "next_hops 0"},
		{"number in another form", `1/5/`, `1/05/`, "next_hops 0"},
		{"name of an index without one", `"web"`, `"\u00003"`, "services 0"},
		{"more than the card holds", `"services":["web"`, `"services":["web"` + strings.Repeat(`,""`, 16), "17 services, the card has room for 16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(good, tt.old) {
				t.Fatalf("%s is not in the text", tt.old)
			}
			_, err := parseState([]byte(strings.Replace(good, tt.old, tt.new, 1)), plenty)
			if !errors.Is(err, errState) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestStateFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "splice.state.json")
	if s, err := readState(name, plenty); s != nil || err != nil {
		t.Errorf("no file: %v, %v", s, err)
	}
	for _, text := range []string{`{"version":1}`, `{"version":1,"serial":2}`} {
		if err := writeState(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := readState(name, plenty)
	if err != nil || s.Serial != 2 {
		t.Errorf("read %+v, %v", s, err)
	}
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("file %v, %v", st, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%d files, %v", len(list), err)
	}
	if _, err := readState(dir, plenty); !errors.Is(err, errState) {
		t.Errorf("a directory: %v", err)
	}
	if err := os.Truncate(name, maxState+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(name, plenty); !errors.Is(err, errState) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
	if err := writeState(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("written to a directory that is not there")
	}
}

// TestDigest: what counts is the content, not how much of it a shadow holds.
func TestDigest(t *testing.T) {
	a := digest([]banked{{4, table{1, 2}}, {5, table{3}}})
	if b := digest([]banked{{4, table{1, 2, 0, 0}}, {5, table{3, 0}}}); a != b {
		t.Error("zeros at the end count")
	}
	for _, other := range [][]banked{{{4, table{1, 2, 3}}, {5, nil}}, {{4, table{1}}, {5, table{2, 3}}}, {{4, table{2, 1}}, {5, table{3}}}, {{5, table{1, 2}}, {4, table{3}}}} {
		if digest(other) == a {
			t.Errorf("%v has the digest of another", other)
		}
	}
	f, w := newFake(), newWriter(nil)
	w.card = f
	im, err := images(inputs(t, two), &indexes{}, &held{})
	if err == nil {
		err = w.write(context.Background(), im)
	}
	if err != nil {
		t.Fatal(err)
	}
	back, err := readBack(context.Background(), f, f.bank, f.generation)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := back.inForce(), (stateBank{1, digest(im.banked())}); got != want || w.inForce() != want {
		t.Errorf("in force %v by the writer, %v read back, want %v", w.inForce(), got, want)
	}
}

// TestReadBack: a writer made from the card is the writer that wrote.
func TestReadBack(t *testing.T) {
	f := newFake()
	w := newWriter(f)
	ix := indexes{}
	for _, text := range []string{two, three, two} {
		im, err := images(inputs(t, text), &ix, &held{})
		if err == nil {
			err = w.write(context.Background(), im)
		}
		if err != nil {
			t.Fatal(err)
		}
		ix = im.ix
		back, err := readBack(context.Background(), f, f.bank, f.generation)
		if err != nil {
			t.Fatal(err)
		}
		if back.bank != w.bank || back.generation != w.generation {
			t.Errorf("bank %d, generation %d, want %d, %d", back.bank, back.generation, w.bank, w.generation)
		}
		for m, want := range w.shadow {
			if m.index != regs.MemGroupState && !slices.Equal(back.shadow[m].trimmed(1), want.trimmed(1)) {
				t.Errorf("%s bank %d: %x, want %x", f.memories[m.index].Name, m.bank, back.shadow[m], want)
			}
		}
		if diff := cmp.Diff(w.selector, back.selector, cmp.AllowUnexported(selector{})); diff != "" {
			t.Errorf("selectors (-writer +read back):\n%s", diff)
		}
	}
	for _, name := range []string{"listener", "url", "slot", "vip"} {
		boom := errors.New("boom")
		f.fail = func(op, memory string) error {
			if memory == name {
				return boom
			}
			return nil
		}
		if _, err := readBack(context.Background(), f, f.bank, f.generation); !errors.Is(err, boom) || !strings.Contains(err.Error(), "read back table "+name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// FuzzAdopt changes words in a card's tables and takes a state file for its own: whatever they say, the configuration
// that a successor applies is what the card does.
func FuzzAdopt(f *testing.F) {
	f.Add([]byte(`{"version":1}`), []byte{})
	f.Add([]byte(`{"version":1,"vips":["198.18.0.81","198.18.0.80"],"services":["b","a"],"groups":["h"],"servers":["198.18.1.12:80/tcp"],"next_hops":["1/0/198.18.1.12"]}`), []byte{8, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{}, []byte{10, 0, 3, 0, 255, 255, 255, 255, 9, 0, 1, 0, 1, 1, 1, 1, 6, 0, 0, 0, 255, 255, 255, 127})
	f.Fuzz(func(t *testing.T, text, stores []byte) {
		card := newFakeOf(little)
		var none []byte
		if err := born(card, little, &none).apply(t, before); err != nil {
			t.Fatal(err)
		}
		kinds := []memory{
			{regs.MemListener, 0}, {regs.MemListener, 1}, {regs.MemService, 0}, {regs.MemService, 1}, {regs.MemGroup, 1}, {regs.MemRule, 1}, {regs.MemGroupState, 0},
			{regs.MemSlot, 0}, {regs.MemVip, 0}, {regs.MemNextHop, 0}, {regs.MemServer, 0}, {regs.MemUrl, 1},
		}
		for ; len(stores) >= 8; stores = stores[8:] {
			m := kinds[int(stores[0])%len(kinds)]
			mem := card.memories[m.index]
			start, err := mem.At(m.bank, 0)
			if err != nil {
				t.Fatal(err)
			}
			at := uint64(binary.LittleEndian.Uint16(stores[2:])) % uint64(mem.Entries*mem.EntryBytes/4)
			card.words[start+4*at] = binary.LittleEndian.Uint32(stores[4:])
		}
		w, err := readBack(context.Background(), card, card.bank, card.generation)
		if err != nil {
			t.Fatal(err)
		}
		p := &predecessor{w: w}
		if s, err := parseState(text, little); err == nil {
			p.state = *s
			again, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if s2, err := parseState(again, little); err != nil || !cmp.Equal(s, s2) {
				t.Fatalf("written again: %v", err)
			}
		}
		c := parseOnce(t, before)
		l := &life{card: card, w: w, ix: p.indexes(c, little), state: &none, live: &live{}, room: little}
		names := l.ix.servers.Names()
		if _, err := images(inputsOf(t, before, little), l.ix, l.live.keep()); errors.Is(err, rule.ErrFull) {
			return
		}
		if err := l.apply(t, before); err != nil {
			t.Fatal(err)
		}
		clean := newFakeOf(little)
		if err := born(clean, little, &none).apply(t, before); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(clean.meaning(), card.meaning()); diff != "" {
			t.Errorf("the card (-clean +successor):\n%s", diff)
		}
		for i, n := range l.ix.servers.Names() {
			if i < len(names) && names[i] != "" && names[i] != n && len(names) < int(little.Servers) {
				t.Errorf("server %d was %s and is %s", i, names[i], n)
			}
		}
		if _, err := parseState(bytes.Clone(none), little); err != nil {
			t.Errorf("the next state file: %v", err)
		}
	})
}
