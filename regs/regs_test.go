package regs

import (
	"testing"

	"splicenic/regs/spec"
)

func TestMasks(t *testing.T) {
	tests := []struct {
		name        string
		mask, write uint32
	}{
		{"amu.free", 0xffffffff, 0},
		{"amu.control", 1, 1},
		{"port.client.mac_lo", 0xffffffff, 0xffffffff},
		{"port.client.status", 0x0fffff03, 0},
		{"identity.pci_id", 0x7fffffff, 0},
		{"sensor.alarm", 7, 7},
		{"control.reset", 3, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, ok := LookupRegister(tt.name)
			if !ok {
				t.Fatal("not found")
			}
			if got := l.Register.Mask(); got != tt.mask {
				t.Errorf("mask: got %#x, want %#x", got, tt.mask)
			}
			if got := l.Register.WriteMask(); got != tt.write {
				t.Errorf("write mask: got %#x, want %#x", got, tt.write)
			}
		})
	}
}

func TestFieldInfo(t *testing.T) {
	ft, _ := LookupFormat("page")
	f, ok := ft.Words[PageControl].Field("state")
	if !ok {
		t.Fatal("page.control.state is not there")
	}
	if got := f.Get(0x0b); got != StateClosing {
		t.Errorf("get: got %d, want %d", got, StateClosing)
	}
	if got := f.Set(0xffffffff, StateWaitHead); got != 0xfffffff5 {
		t.Errorf("set: got %#x", got)
	}
	if got := f.ValueName(StateSynRcvd); got != "syn_rcvd" {
		t.Errorf("value name: got %q", got)
	}
	if got := f.ValueName(99); got != "" {
		t.Errorf("name of no value: got %q", got)
	}
	if _, ok := ft.Words[PageControl].Field("colour"); ok {
		t.Error("found a field that is not there")
	}
}

func TestMemoryAt(t *testing.T) {
	tests := []struct {
		mem         int
		bank, entry uint32
		want        uint64
	}{
		{MemPage, 0, 0, 0},
		{MemPage, 0, 294_911, 294_911 * 256},
		{MemUrl, 0, 1, 384<<20 + 32},
		{MemUrl, 1, 0, 384<<20 + MemUrlBankBytes},
		{MemListener, 1, 3, MemListenerOffset + MemListenerBankBytes + 3*ListenerBytes},
	}
	for _, tt := range tests {
		m := &Memories[tt.mem]
		if got := m.At(tt.bank, tt.entry); got != tt.want {
			t.Errorf("%s bank %d entry %d: got %#x, want %#x", m.Name, tt.bank, tt.entry, got, tt.want)
		}
	}
	if got := Memories[MemUrl].Bytes(); got != 2*MemUrlBankBytes {
		t.Errorf("bytes of url: got %#x, want %#x", got, 2*MemUrlBankBytes)
	}
	if got := Memories[MemPage].Geometry; got != GeometryPages {
		t.Errorf("geometry of page: got %s", got.Name())
	}
}

// The numbers of both packages are the same where this one declares them by hand.
func TestKindsAgreeWithSpec(t *testing.T) {
	for a := Access(0); a < 10; a++ {
		if got, want := a.String(), spec.Access(a).String(); got != want {
			t.Errorf("access %d: got %q, want %q", a, got, want)
		}
	}
	for c := Class(0); c < 10; c++ {
		if got, want := c.String(), spec.Class(c).String(); got != want {
			t.Errorf("class %d: got %q, want %q", c, got, want)
		}
	}
}

func TestDigests(t *testing.T) {
	m := spec.Card()
	if got := spec.Digest(m.CanonicalShell()); got != ShellDigest {
		t.Errorf("shell: got %#x, want %#x", got, ShellDigest)
	}
	if got := spec.Digest(m.CanonicalDataPath()); got != DataPathDigest {
		t.Errorf("data path: got %#x, want %#x", got, DataPathDigest)
	}
	if len(ShellDigest256) != 64 || len(DataPathDigest256) != 64 {
		t.Errorf("256 bits are 64 digits, got %d and %d", len(ShellDigest256), len(DataPathDigest256))
	}
	seen := map[uint32]string{0: "nothing", 1<<32 - 1: "a lost device", ShellDigest: "the shell", DataPathDigest: "the data path"}
	for _, b := range Blocks {
		if other, ok := seen[b.Digest]; ok {
			t.Errorf("%s has the digest of %s", b.Name, other)
		}
		seen[b.Digest] = b.Name
	}
}
