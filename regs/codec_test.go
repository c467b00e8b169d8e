package regs

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

type codec interface {
	Decode(w []uint32)
	Encode(w []uint32)
}

var codecs = map[string]codec{
	"page": &PageEntry{}, "cam_word": &CamWordEntry{}, "url_node": &UrlNodeEntry{}, "url_text": &UrlTextEntry{}, "url_condition": &UrlConditionEntry{}, "url_net": &UrlNetEntry{}, "rule": &RuleEntry{}, "rule_counter": &RuleCounterEntry{},
	"slot": &SlotEntry{}, "listener": &ListenerEntry{}, "service": &ServiceEntry{}, "group": &GroupEntry{}, "group_state": &GroupStateEntry{},
	"server": &ServerEntry{}, "server_state": &ServerStateEntry{}, "next_hop": &NextHopEntry{}, "address": &AddressEntry{},
	"local_port": &LocalPortEntry{}, "list_entry": &ListEntryEntry{}, "exception": &ExceptionEntry{}, "event": &EventEntry{},
	"source_bucket": &SourceBucketEntry{}, "completion": &CompletionEntry{}, "inject": &InjectEntry{}, "command": &CommandEntry{},
}

// Every bit that means something survives Decode and Encode; reserved bits come out zero, also over old contents.
func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range Formats {
		ft := &Formats[i]
		if ft.Bytes > 256 {
			continue
		}
		t.Run(ft.Name, func(t *testing.T) {
			c, ok := codecs[ft.Name]
			if !ok {
				t.Fatal("add the codec to this test")
			}
			for range 100 {
				in := random(rnd, ft.Bytes/4)
				want := documented(ft, in)
				c.Decode(in)
				got := random(rnd, ft.Bytes/4)
				c.Encode(got)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("of %08x\ngot  %08x\nwant %08x", in, got, want)
				}
			}
		})
	}
}

// The struct's fields are the tables' fields: generated code and run-time description agree.
func TestDecodeAgreesWithTables(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for name, c := range codecs {
		t.Run(name, func(t *testing.T) {
			ft, ok := LookupFormat(name)
			if !ok {
				t.Fatal("no such format")
			}
			w := random(rnd, ft.Bytes/4)
			c.Decode(w)
			v := reflect.ValueOf(c).Elem()
			fields := 0
			for _, wd := range ft.Words {
				if wd.Reserved() {
					continue
				}
				for i := range wd.Fields {
					fields++
					f := &wd.Fields[i]
					if got, want := v.FieldByName(camel(wd.Name, f.Name)).Uint(), uint64(f.Get(w[wd.Index])); got != want {
						t.Errorf("%s.%s: got %#x, want %#x", wd.Name, f.Name, got, want)
					}
				}
				if len(wd.Fields) > 0 {
					continue
				}
				fields++
				got := v.FieldByName(camel(wd.Name))
				if wd.Count == 1 && got.Uint() != uint64(w[wd.Index]) {
					t.Errorf("%s: got %#x, want %#x", wd.Name, got.Uint(), w[wd.Index])
				}
				for i := range int(wd.Count) {
					if wd.Count > 1 && got.Index(i).Uint() != uint64(w[int(wd.Index)+i]) {
						t.Errorf("%s[%d]: got %#x, want %#x", wd.Name, i, got.Index(i).Uint(), w[int(wd.Index)+i])
					}
				}
			}
			if got := v.NumField(); got != fields {
				t.Errorf("struct has %d fields, want %d", got, fields)
			}
		})
	}
}

func TestAccessors(t *testing.T) {
	tests := []struct {
		name      string
		get       func(uint32) uint32
		set       func(w, v uint32) uint32
		w, v, out uint32 // get(w) is v; set(^w, v) is out
	}{
		{"lowest bit", PortControlEnable, SetPortControlEnable, 1, 1, 0xffffffff},
		{"in the middle", PageControlState, SetPageControlState, 0x0b, 5, 0xfffffffa},
		{"highest bits", PageControlGeneration, SetPageControlGeneration, 0xabc00000, 0xabc, 0xabcfffff},
		{"in a register", PortStatusSpeed, SetPortStatusSpeed, 0x00989600, 0x9896, 0xf09896ff},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.get(tt.w); got != tt.v {
				t.Errorf("get(%#x): got %#x, want %#x", tt.w, got, tt.v)
			}
			if got := tt.set(^tt.w, tt.v); got != tt.out {
				t.Errorf("set(%#x, %#x): got %#x, want %#x", ^tt.w, tt.v, got, tt.out)
			}
		})
	}
	if got := SetPageControlState(0, 0xff); got != PageControlStateMask {
		t.Errorf("a value too large: got %#x, want %#x", got, PageControlStateMask)
	}
}

func TestCodecsDoNotAllocate(t *testing.T) {
	var p PageEntry
	w := make([]uint32, PageWords)
	if got := testing.AllocsPerRun(100, func() { p.Decode(w); p.Encode(w) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func BenchmarkPageDecodeEncode(b *testing.B) {
	b.ReportAllocs()
	var p PageEntry
	w := make([]uint32, PageWords)
	for b.Loop() {
		p.Decode(w)
		p.Encode(w)
	}
}

func BenchmarkFieldGetSet(b *testing.B) {
	b.ReportAllocs()
	var w uint32
	for b.Loop() {
		w = SetPageControlState(w, PageControlState(w)+1)
	}
}

func random(rnd *rand.Rand, n uint32) []uint32 {
	w := make([]uint32, n)
	for i := range w {
		w[i] = rnd.Uint32()
	}
	return w
}

// documented clears the bits of an entry that mean nothing.
func documented(ft *FormatInfo, in []uint32) []uint32 {
	out := make([]uint32, len(in))
	for i := range ft.Words {
		wd := &ft.Words[i]
		for k := wd.Index; k < wd.Index+wd.Count; k++ {
			out[k] = in[k] & wd.Mask()
		}
	}
	return out
}

func camel(names ...string) string {
	var t strings.Builder
	for _, part := range strings.Split(strings.Join(names, "_"), "_") {
		t.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return t.String()
}
