package image

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"splicenic/bitstream/xilinx"
	"splicenic/regs"
)

const silicon = 0x13636093

func sample() Params {
	return Params{Name: "splice 1", Version: Version{1, 2, 3}, UserCode: 0xcafe0001, DataPathDigest: regs.DataPathDigest, Geometry: Geometry{Pages: 2048, UrlNodes: 512}}
}

func encode(t testing.TB, p Params, o Options) []byte {
	t.Helper()
	b, err := Encode(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	for _, o := range []Options{{}, {Bytes: 100_000}, {Bytes: 1 << 20}} {
		b := encode(t, sample(), o)
		if o.Bytes != 0 && len(b) != o.Bytes {
			t.Errorf("%d bytes, want %d", len(b), o.Bytes)
		}
		r := bytes.NewReader(append(b, bytes.Repeat([]byte{0xff}, 1<<20)...))
		p, failed, err := Load(r, silicon)
		if p != sample() || failed != 0 || err != nil {
			t.Errorf("loaded %+v, %d, %v", p, failed, err)
		}
		if read := int(r.Size()) - r.Len(); read > len(b)+4096 {
			t.Errorf("read %d bytes of a stream of %d", read, len(b))
		}
		if s, err := xilinx.Decode(b); err != nil || s.Fault() != "" || !slices.Equal(s.IDCodes, []uint32{IDCode}) || s.Partial() || *s.UserAccess != sample().UserCode {
			t.Errorf("decoded: %+v, %v", s, err)
		}
	}
}

func TestEncodeRefused(t *testing.T) {
	for name, change := range map[string]func(*Params, *Options){
		"no name":        func(p *Params, _ *Options) { p.Name = "" },
		"long name":      func(p *Params, _ *Options) { p.Name = string(make([]byte, 33)) },
		"name":           func(p *Params, _ *Options) { p.Name = "a\x00b" },
		"major":          func(p *Params, _ *Options) { p.Version[0] = 128 },
		"minor":          func(p *Params, _ *Options) { p.Version[1] = 256 },
		"patch":          func(p *Params, _ *Options) { p.Version[2] = 65536 },
		"digest 0":       func(p *Params, _ *Options) { p.DataPathDigest = 0 },
		"digest -1":      func(p *Params, _ *Options) { p.DataPathDigest = 1<<32 - 1 },
		"too short":      func(_ *Params, o *Options) { o.Bytes = 400 },
		"no whole words": func(_ *Params, o *Options) { o.Bytes = 100_002 },
		"too long":       func(_ *Params, o *Options) { o.Bytes = MaxBytes + 4 },
	} {
		p, o := sample(), Options{}
		change(&p, &o)
		if _, err := Encode(p, o); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func TestBit(t *testing.T) {
	b, err := EncodeBit(sample(), Options{}, "2026/01/02", "03:04:05")
	if err != nil {
		t.Fatal(err)
	}
	want := encode(t, sample(), Options{})
	if !bytes.HasSuffix(b, want) || binary.BigEndian.Uint32(b[len(b)-len(want)-4:]) != uint32(len(want)) {
		t.Error("the stream does not end the file, or its length does not stand before it")
	}
	for _, text := range []string{"splice 1;UserID=0XCAFE0001;Version=1.2.3\x00", "7a200tfbg484\x00", "2026/01/02\x00", "03:04:05\x00"} {
		if !bytes.Contains(b, []byte(text)) {
			t.Errorf("no %q", text)
		}
	}
}

// TestLoadFailures: why a slot does not load.
func TestLoadFailures(t *testing.T) {
	good := encode(t, sample(), Options{})
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	find := func(words ...uint32) int {
		var pattern []byte
		for _, w := range words {
			pattern = binary.BigEndian.AppendUint32(pattern, w)
		}
		return bytes.Index(good, pattern)
	}
	blank := bytes.Repeat([]byte{0xff}, 128<<10)
	foreign := (&xilinx.Encoder{IDCode: IDCode, Runs: []xilinx.Run{{Words: make([]uint32, xilinx.FrameWords)}}}).Append(nil)
	for _, x := range []struct {
		name   string
		stream []byte
		failed uint32
		is     error
	}{
		{"nothing", nil, regs.ConfigurationBootStatusErrorNoSync, nil},
		{"blank", blank, regs.ConfigurationBootStatusErrorNoSync, nil},
		{"far away", append(bytes.Clone(blank), good...), regs.ConfigurationBootStatusErrorNoSync, nil},
		{"other part", edit(func(b []byte) []byte { b[find(0x30018001)+5]++; return b }), regs.ConfigurationBootStatusErrorIdcode, nil},
		{"flipped bit", edit(func(b []byte) []byte { b[bytes.Index(b, []byte("pages"))] ^= 1; return b }), regs.ConfigurationBootStatusErrorCrc, nil},
		{"cut off", good[:find(0x30008001, xilinx.CmdStart)], regs.ConfigurationBootStatusErrorCrc, nil},
		{"erased behind", append(bytes.Clone(good[:find(0x30008001, xilinx.CmdStart)]), blank...), regs.ConfigurationBootStatusErrorCrc, nil},
		{"another design", foreign, regs.ConfigurationBootStatusErrorCrc, ErrForeign},
	} {
		p, failed, err := Load(bytes.NewReader(x.stream), silicon)
		if failed != x.failed || err == nil || p != (Params{}) || x.is != nil && !errors.Is(err, x.is) {
			t.Errorf("%s: %+v, failed %d, %v; want %d", x.name, p, failed, err, x.failed)
		}
	}
}

func frameText(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(magic), uint32(len(text))), text...)
}

func TestDecodeStrict(t *testing.T) {
	p := sample()
	good, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(append(frameText(string(good)), make([]byte, 99)...)); got != p || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	replace := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("no %s in %s", old, good)
		}
		return frameText(string(bytes.Replace(good, []byte(old), []byte(new), 1)))
	}
	for name, frames := range map[string][]byte{
		"nothing":       nil,
		"magic":         append([]byte("splice01"), frameText(string(good))[8:]...),
		"length":        binary.BigEndian.AppendUint32([]byte(magic), 5),
		"huge":          binary.BigEndian.AppendUint32([]byte(magic), 1<<32-1),
		"no text":       frameText("{"),
		"unknown field": replace(`"name"`, `"extra":1,"name"`),
		"twice":         replace(`"name"`, `"user_code":1,"name"`),
		"spelling":      replace(`"name"`, ` "name"`),
		"case":          replace(`"name"`, `"Name"`),
		"version":       replace(`[1,2,3]`, `[1,2]`),
		"range":         replace(`[1,2,3]`, `[1,256,3]`),
		"trailing":      frameText(string(good) + "{}"),
		"zero field":    replace(`"pages":2048`, `"pages":0`),
	} {
		if got, err := Decode(frames); !errors.Is(err, ErrForeign) || got != (Params{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzDecode: whatever Decode takes is what frames makes.
func FuzzDecode(f *testing.F) {
	p := sample()
	good, err := p.frames()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:20])
	f.Add(frameText(`{"name":"x","version":[0,0,0],"user_code":0,"data_path_digest":1,"geometry":{}}`))
	f.Fuzz(func(t *testing.T, frames []byte) {
		p, err := Decode(frames)
		if err != nil {
			return
		}
		again, err := p.frames()
		if err != nil || !bytes.HasPrefix(frames, again) {
			t.Errorf("%+v comes back as %q, %v", p, again, err)
		}
	})
}

// FuzzLoad: no stream makes the logic run on, or takes what it did not carry.
func FuzzLoad(f *testing.F) {
	good, err := Encode(sample(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte{0xaa, 0x99, 0x55, 0x66, 0x50, 0, 0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		p, failed, err := Load(bytes.NewReader(stream), silicon)
		if (failed == regs.ConfigurationBootStatusErrorNone) != (err == nil) {
			t.Errorf("failed %d, %v", failed, err)
		}
		if err == nil && p.check() != nil {
			t.Errorf("loaded %+v", p)
		}
	})
}

// BenchmarkLoad is a boot of a stream of real size.
func BenchmarkLoad(b *testing.B) {
	s := encode(b, sample(), Options{Bytes: 9_730_652})
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		if _, failed, err := Load(bytes.NewReader(s), silicon); failed != 0 || err != nil {
			b.Fatal(failed, err)
		}
	}
}
