package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"splicenic/runtime/config"
)

// A state is what the card's tables cannot tell a successor: the names behind indexes. It is written before the tables
// are, so that it names whatever the card holds at any time. A list gives the name of each index that was ever given out,
// retired ones included; an empty name is one that nobody knows.
type state struct {
	Version  int         `json:"version"`
	Serial   uint64      `json:"serial"`
	DataPath uint32      `json:"data_path"` // digest
	Banks    []stateBank `json:"banks"`     // what is or may be in force

	VIPs     []string `json:"vips"`
	Services []string `json:"services"`
	Groups   []string `json:"groups"`
	Servers  []string `json:"servers"`
	Hops     []string `json:"next_hops"`
	Rules    []string `json:"rules"`
}

// stateBank tells one content of the banked tables from all others.
type stateBank struct {
	Generation uint32 `json:"generation"`
	Digest     string `json:"digest"`
}

const (
	stateVersion = 1
	maxState     = 64 << 20 // bytes of a state file
)

// errState is the error of a state file that is none.
var errState = errors.New("not a state file of this build")

// parseState reads a state file's text. The lists are as long as the card has room, at most, and their names differ and
// mean something; more is not believed.
func parseState(text []byte, room Room) (*state, error) {
	s := &state{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("%w: %v", errState, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: text after its end", errState)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%w: version %d, want %d", errState, s.Version, stateVersion)
	}
	for _, l := range []struct {
		name  string
		list  []string
		room  uint32
		valid func(string) bool
	}{
		{"vips", s.VIPs, room.VIPs, isVIP}, {"services", s.Services, room.Services, isName}, {"groups", s.Groups, room.Groups, isName},
		{"servers", s.Servers, room.Servers, isServer}, {"next_hops", s.Hops, room.NextHops, isHop}, {"rules", s.Rules, room.Rules, isName},
	} {
		if uint64(len(l.list)) > uint64(l.room) {
			return nil, fmt.Errorf("%w: %d %s, the card has room for %d", errState, len(l.list), l.name, l.room)
		}
		seen := make(map[string]bool, len(l.list))
		for i, n := range l.list {
			if n != "" && (seen[n] || !l.valid(n)) {
				return nil, fmt.Errorf("%w: %s %d is %.80q", errState, l.name, i, n)
			}
			seen[n] = true
		}
	}
	return s, nil
}

// isName keeps out what would begin like the name of an index without one.
func isName(n string) bool { return n[0] != 0 }

func isVIP(n string) bool {
	a, err := netip.ParseAddr(n)
	return err == nil && a.String() == n
}

func isHop(n string) bool {
	_, ok := parseHop(n)
	return ok
}

// parseHop is the other way round than hopName.
func parseHop(n string) (config.Hop, bool) {
	part := strings.SplitN(n, "/", 3)
	if len(part) != 3 {
		return config.Hop{}, false
	}
	port, err1 := strconv.ParseUint(part[0], 10, 1)
	vlan, err2 := strconv.ParseUint(part[1], 10, 12)
	addr, err3 := netip.ParseAddr(part[2])
	h := config.Hop{Port: int(port), VLAN: uint16(vlan), Neighbor: addr}
	return h, err1 == nil && err2 == nil && err3 == nil && hopName(h) == n
}

// readState reads a state file; nil without an error where there is none.
func readState(path string, room Room) (*state, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w: not a regular file", path, errState)
	}
	if st.Size() > maxState {
		return nil, fmt.Errorf("read %s: %w: larger than %d bytes", path, errState, maxState)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState)) // it may have grown; then it is cut, and so not believed
	if err != nil {
		return nil, err
	}
	s, err := parseState(text, room)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// writeState replaces a state file. It outlives this process; when the machine goes, the card's tables go with it, so that
// nothing is gained by waiting for the disk.
func writeState(path string, text []byte) error {
	next := path + ".tmp"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// lists takes over the names of all indexes.
func (s *state) lists(ix *indexes) {
	s.VIPs, s.Services, s.Groups = ix.vips.Names(), ix.services.Names(), ix.groups.Names()
	s.Servers, s.Hops, s.Rules = ix.servers.Names(), ix.hops.Names(), ix.rules.Names()
}

// tells says whether a state is about what a card has in force.
func (s *state) tells(serial uint64, dataPath uint32, bank stateBank) bool {
	return s.Serial == serial && s.DataPath == dataPath && slices.Contains(s.Banks, bank)
}

// banks are the contents of the banked tables that are in force, or will be when an Image is written.
func (w *writer) banks(im *Image) (banks []stateBank) {
	if w.generation != 0 {
		banks = append(banks, w.inForce())
	}
	if w.changes(im) {
		banks = append(banks, stateBank{w.next(), digest(im.banked())})
	}
	return banks
}

// inForce is the content of the banked tables in force.
func (w *writer) inForce() stateBank {
	if w.digest == "" {
		var tables []banked
		for _, t := range (&Image{}).banked() {
			tables = append(tables, banked{t.index, w.shadow[memory{t.index, w.bank}]})
		}
		w.digest = digest(tables)
	}
	return stateBank{w.generation, w.digest}
}

// digest is a name for the content of tables; zeros at their ends do not count.
func digest(tables []banked) string {
	h := sha256.New()
	b := make([]byte, 0, 4096)
	for _, t := range tables {
		words := t.want.trimmed(1)
		b = binary.LittleEndian.AppendUint32(b, uint32(t.index))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(words)))
		for _, w := range words {
			if len(b) > 4092 {
				h.Write(b)
				b = b[:0]
			}
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		h.Write(b)
		b = b[:0]
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// trimmed is a table without the entries at its end that are zero.
func (t table) trimmed(words uint32) table {
	n := len(t)
	for n > 0 && t[n-1] == 0 {
		n--
	}
	return t[:min(len(t), (n+int(words)-1)/int(words)*int(words))]
}
