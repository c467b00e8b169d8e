package oracle_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splicenic/emu/oracle"
)

// save writes the shots of one wire as a pcap file with nanoseconds. No two frames have the same time, as virtual time
// gives to what a card does in one step: their order is the record's.
func save(t *testing.T, shots []shot, wire oracle.Wire) string {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b23c4d)
	b = append(b, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint32(b, 1<<18)
	b = le.AppendUint32(b, 1)
	for i, s := range shots {
		if s.wire != wire {
			continue
		}
		at := int64(1_700_000_000_000_000_000) + int64(s.at) + int64(i)
		b = le.AppendUint32(b, uint32(at/1e9))
		b = le.AppendUint32(b, uint32(at%1e9))
		b = le.AppendUint32(b, uint32(len(s.bytes)))
		b = le.AppendUint32(b, uint32(len(s.bytes)))
		b = append(b, s.bytes...)
	}
	file := filepath.Join(t.TempDir(), wire.String()+".pcap")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReadPcap(t *testing.T) {
	shots := good(t)
	client, server := save(t, shots, oracle.ClientWire), save(t, shots, oracle.ServerWire)
	got, s, err := oracle.ReadPcap(client, server, oracle.Config{})
	if err != nil || len(got) != 0 || s.Frames != uint64(len(shots)) || s.Spliced != 1 || s.BytesDown != 200_000 {
		t.Errorf("%v, %+v, %v", got, s, err)
	}
	bad := change(false, card(oracle.ClientWire, hasData), func(s *shot) { s.payload()[7]++ })(shots)
	got, _, err = oracle.ReadPcap(save(t, bad, oracle.ClientWire), server, oracle.Config{})
	if err != nil || len(got) != 1 || got[0].Kind != oracle.Bytes {
		t.Errorf("with another byte: %v, %v", got, err)
	}
	none := filepath.Join(t.TempDir(), "none")
	cut := filepath.Join(t.TempDir(), "cut")
	b, _ := os.ReadFile(server)
	if err := os.WriteFile(cut, b[:len(b)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ client, server, want string }{
		{none, server, "no such file"},
		{client, cut, "the file is cut off here"},
		{os.Args[0], server, "neither pcap nor pcapng"},
	} {
		if _, _, err := oracle.ReadPcap(tt.client, tt.server, oracle.Config{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %s: error %v, want %q", tt.client, tt.server, err, tt.want)
		}
	}
}

// FuzzFrames feeds the oracle anything; it must not fail, and keeps no more than it may.
func FuzzFrames(f *testing.F) {
	shots := good(f)
	var seed []byte
	for i, s := range shots {
		if len(s.bytes) > 400 {
			continue
		}
		who := byte(s.wire)
		if s.fromCard {
			who |= 2
		}
		seed = append(append(seed, who, byte(len(s.bytes)), byte(len(s.bytes)>>8)), s.bytes...)
		if i%40 == 20 {
			f.Add(seed)
			seed = nil
		}
		if i > 400 {
			break
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o := oracle.New(oracle.Config{Coalesced: true, Connections: 4, Violations: 10})
		for len(b) >= 3 {
			n := min(int(b[1])|int(b[2])<<8, len(b)-3)
			o.Frame(oracle.Wire(b[0]&1), b[0]&2 != 0, 0, b[3:3+n])
			b = b[3+n:]
		}
		if n := len(o.Finish()); n > 10 {
			t.Errorf("%d violations kept", n)
		}
	})
}
