package port_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// shot is one frame of a capture.
type shot struct {
	At    time.Duration // since 1970
	Bytes []byte
}

// shots are frames of every length modulo four.
func shots(first time.Duration) []shot {
	var ss []shot
	for i := range 9 {
		ss = append(ss, shot{first + time.Duration(i)*time.Millisecond, bytes.Repeat([]byte{byte(i)}, 60+i)})
	}
	return ss
}

// capture writes frames with gopacket.
func capture(t *testing.T, name string, ss []shot) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var write func(gopacket.CaptureInfo, []byte) error
	if strings.HasSuffix(name, ".pcapng") {
		w, err := pcapgo.NewNgWriter(f, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Flush()
		write = w.WritePacket
	} else {
		w := pcapgo.NewWriterNanos(f)
		if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
			t.Fatal(err)
		}
		write = w.WritePacket
	}
	for _, s := range ss {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(0, int64(s.At)), CaptureLength: len(s.Bytes), Length: len(s.Bytes)}
		if err := write(ci, s.Bytes); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// readBack reads a capture with gopacket.
func readBack(t *testing.T, file string) []shot {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r gopacket.PacketDataSource
	if strings.HasSuffix(file, ".pcapng") {
		r, err = pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	} else {
		r, err = pcapgo.NewReader(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	var ss []shot
	for {
		b, ci, err := r.ReadPacketData()
		if err == io.EOF {
			return ss
		}
		if err != nil {
			t.Fatal(err)
		}
		if ci.Length != len(b) {
			t.Errorf("length %d of %d bytes", ci.Length, len(b))
		}
		ss = append(ss, shot{time.Duration(ci.Timestamp.UnixNano()), b})
	}
}

func open(t *testing.T, in, out string) *port.Pcap {
	t.Helper()
	p, err := port.OpenPcap(in, out)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// buffers are frames to receive into.
func buffers(n, size int) []frame.Frame {
	fs := make([]frame.Frame, n)
	for i := range fs {
		fs[i] = frame.Frame{Buf: make([]byte, size), Start: frame.Headroom}
	}
	return fs
}

// receive takes all that is due, in small batches.
func receive(p port.Port) (got [][]byte) {
	fs := buffers(4, p.BufferBytes())
	for {
		n := p.Receive(fs)
		for i := range fs[:n] {
			got = append(got, append([]byte(nil), fs[i].Bytes()...))
			fs[i].Start = frame.Headroom
		}
		if n < len(fs) {
			return got
		}
	}
}

func bytesOf(ss []shot) (bs [][]byte) {
	for _, s := range ss {
		bs = append(bs, s.Bytes)
	}
	return bs
}

func TestPcapReceive(t *testing.T) {
	const first = 1_700_000_000*time.Second + 123_456_789
	for _, name := range []string{"in.pcap", "in.pcapng"} {
		t.Run(name, func(t *testing.T) {
			ss := shots(first)
			p := open(t, capture(t, name, ss), "")
			if at, ok := p.Due(); at != 0 || !ok {
				t.Errorf("first frame due at %v, %t", at, ok)
			}
			// By the clock: three frames within two milliseconds, none before.
			p.SetNow(-1)
			if got := receive(p); got != nil {
				t.Errorf("before its time: %d frames", len(got))
			}
			p.SetNow(2 * time.Millisecond)
			if d := cmp.Diff(bytesOf(ss[:3]), receive(p)); d != "" {
				t.Error(d)
			}
			if at, ok := p.Due(); at != 3*time.Millisecond || !ok {
				t.Errorf("next frame due at %v, %t, want 3ms", at, ok)
			}
			p.SetNow(time.Hour)
			if d := cmp.Diff(bytesOf(ss[3:]), receive(p)); d != "" {
				t.Error(d)
			}
			if _, ok := p.Due(); ok {
				t.Error("a frame is due after the last")
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			// Without a clock: all at once.
			p = open(t, capture(t, name, ss), "")
			if d := cmp.Diff(bytesOf(ss), receive(p)); d != "" {
				t.Error(d)
			}
			if err := errors.Join(p.Close(), p.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPcapTransmit(t *testing.T) {
	const first = 1_700_000_000*time.Second + 123_456_789
	for _, name := range []string{"out.pcap", "out.pcapng"} {
		t.Run(name, func(t *testing.T) {
			in := capture(t, "in.pcap", shots(first))
			run := func() string {
				out := filepath.Join(t.TempDir(), name)
				p := open(t, in, out)
				for _, s := range shots(0) {
					p.SetNow(s.At + 7)
					if n := p.Transmit([]*frame.Frame{wrap(s.Bytes, frame.Offload{})}); n != 1 {
						t.Fatalf("took %d frames, want 1", n)
					}
				}
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				return out
			}
			out := run()
			// The card's clock counts from the input's first frame.
			if d := cmp.Diff(shots(first+7), readBack(t, out)); d != "" {
				t.Error(d)
			}
			a, errA := os.ReadFile(out)
			b, errB := os.ReadFile(run())
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("two runs differ: %v, %v", errA, errB)
			}
			// What a port has written a port reads.
			p := open(t, out, "")
			if d := cmp.Diff(bytesOf(shots(0)), receive(p)); d != "" {
				t.Error(d)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPcapAlign(t *testing.T) {
	a := open(t, capture(t, "client.pcap", shots(5*time.Second)), "")
	b := open(t, capture(t, "server.pcapng", shots(5*time.Second+40*time.Millisecond)), "")
	defer a.Close()
	defer b.Close()
	if a.MAC() == b.MAC() || a.MAC()[0] != 2 {
		t.Errorf("addresses %x and %x", a.MAC(), b.MAC())
	}
	m, _ := port.Pair(port.MemConfig{})
	port.Align(b, m, a)
	if at, _ := a.Due(); at != 0 {
		t.Errorf("client's first frame at %v, want 0", at)
	}
	if at, _ := b.Due(); at != 40*time.Millisecond {
		t.Errorf("server's first frame at %v, want 40ms", at)
	}
}

// TestPcapTimes covers the encodings gopacket does not write: big endian, microseconds, other resolutions, offsets,
// obsolete and simple packet blocks, several sections.
func TestPcapTimes(t *testing.T) {
	be, le := binary.BigEndian, binary.LittleEndian
	data := bytes.Repeat([]byte{0xab}, 61)
	classic := func(order binary.AppendByteOrder, magic, fraction uint32) []byte {
		b := order.AppendUint32(nil, magic)
		b = order.AppendUint16(b, 2)
		b = order.AppendUint16(b, 4)
		b = append(b, make([]byte, 8)...)
		b = order.AppendUint32(b, 65535)
		b = order.AppendUint32(b, 1)
		for _, w := range []uint32{3, fraction, 61, 61} {
			b = order.AppendUint32(b, w)
		}
		return append(b, data...)
	}
	for _, tt := range []struct {
		name string
		file []byte
		want time.Duration
	}{
		{"big endian microseconds", classic(be, 0xa1b2c3d4, 250_000), 3250 * time.Millisecond},
		{"little endian microseconds", classic(le, 0xa1b2c3d4, 250_000), 3250 * time.Millisecond},
		{"big endian nanoseconds", classic(be, 0xa1b23c4d, 250_000), 3*time.Second + 250*time.Microsecond},
		{"pcapng default", ng(le, idb(le), epb(le, 0, 3_250_000, data)), 3250 * time.Millisecond},
		{"pcapng big endian", ng(be, idb(be), epb(be, 0, 3_250_000, data)), 3250 * time.Millisecond},
		{"pcapng milliseconds", ng(le, idb(le, 9, 0, 1, 0, 3, 0, 0, 0), epb(le, 0, 3250, data)), 3250 * time.Millisecond},
		{"pcapng quarters", ng(le, idb(le, 9, 0, 1, 0, 0x82, 0, 0, 0), epb(le, 0, 13, data)), 3250 * time.Millisecond},
		{"pcapng offset", ng(le, idb(le, 14, 0, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), epb(le, 0, 1_250_000, data)), 3250 * time.Millisecond},
		{"pcapng unknown option and block", ng(le, idb(le, 2, 0, 3, 0, 'e', 't', 'h', 0), block(le, 5, make([]byte, 24)), epb(le, 0, 3_250_000, data)), 3250 * time.Millisecond},
		{"pcapng obsolete packet", ng(le, idb(le), obsolete(le, 3_250_000, data)), 3250 * time.Millisecond},
		{"pcapng simple packet", ng(le, idb(le), simple(le, data)), 0},
		{"pcapng second section", append(ng(be, idb(be, 9, 0, 0, 1, 3, 0, 0, 0)), ng(le, idb(le), epb(le, 0, 3_250_000, data))...), 3250 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := open(t, save(t, tt.file), "")
			defer p.Close()
			// An earlier capture makes the time visible.
			zero := open(t, capture(t, "zero.pcap", shots(0)), "")
			defer zero.Close()
			port.Align(p, zero)
			if at, ok := p.Due(); at != tt.want || !ok {
				t.Errorf("frame due at %v, %t, want %v", at, ok, tt.want)
			}
			if d := cmp.Diff([][]byte{data}, receive(p)); d != "" {
				t.Error(d)
			}
		})
	}
}

// block is a pcapng block.
func block(order binary.AppendByteOrder, kind uint32, body []byte) []byte {
	body = append(body, make([]byte, -len(body)&3)...)
	b := order.AppendUint32(nil, kind)
	b = order.AppendUint32(b, uint32(len(body)+12))
	b = append(b, body...)
	return order.AppendUint32(b, uint32(len(body)+12))
}

// ng is a pcapng section with blocks.
func ng(order binary.AppendByteOrder, blocks ...[]byte) []byte {
	b := order.AppendUint32(nil, 0x1a2b3c4d)
	b = order.AppendUint16(b, 1)
	b = append(b, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255)
	b = block(order, 0x0a0d0d0a, b)
	for _, k := range blocks {
		b = append(b, k...)
	}
	return b
}

func idb(order binary.AppendByteOrder, options ...byte) []byte {
	b := order.AppendUint16(nil, 1)
	b = append(b, 0, 0, 0, 0, 0, 0)
	return block(order, 1, append(b, options...))
}

func epb(order binary.AppendByteOrder, n uint32, at uint64, data []byte) []byte {
	b := order.AppendUint32(nil, n)
	for _, w := range []uint32{uint32(at >> 32), uint32(at), uint32(len(data)), uint32(len(data))} {
		b = order.AppendUint32(b, w)
	}
	return block(order, 6, append(b, data...))
}

func obsolete(order binary.AppendByteOrder, at uint32, data []byte) []byte {
	b := append(order.AppendUint16(nil, 0), 0xff, 0xff)
	for _, w := range []uint32{0, at, uint32(len(data)), uint32(len(data))} {
		b = order.AppendUint32(b, w)
	}
	return block(order, 2, append(b, data...))
}

func simple(order binary.AppendByteOrder, data []byte) []byte {
	return block(order, 3, append(order.AppendUint32(nil, uint32(len(data))), data...))
}

func save(t testing.TB, b []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "capture")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPcapHostile(t *testing.T) {
	le := binary.LittleEndian
	data := make([]byte, 60)
	header := func(major uint16, link uint32) []byte {
		b := le.AppendUint32(nil, 0xa1b2c3d4)
		b = le.AppendUint16(b, major)
		b = append(b, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0)
		return le.AppendUint32(b, link)
	}
	record := func(captured, original uint32) []byte {
		b := append(header(2, 1), 0, 0, 0, 0, 0, 0, 0, 0)
		return append(le.AppendUint32(le.AppendUint32(b, captured), original), data...)
	}
	length := func(b []byte, n uint32) []byte { le.PutUint32(b[4:], n); return b }
	at := func(b []byte, i int, n uint32) []byte { le.PutUint32(b[i:], n); return b }
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "offset 0: too short for a capture file"},
		{"three bytes", []byte{1, 2, 3}, "offset 0: too short for a capture file"},
		{"text", []byte("GET / HTTP/1.1"), "offset 0: neither pcap nor pcapng: it begins with 47455420"},
		{"header cut", header(2, 1)[:20], "offset 0: the file is cut off here"},
		{"version", header(3, 1), "offset 0: pcap version 3.4; 2.4 is known"},
		{"link", header(2, 113), "offset 0: link type 113; a port reads Ethernet (1) only"},
		{"record header cut", record(60, 60)[:30], "offset 24: the file is cut off here"},
		{"record cut", record(61, 61), "offset 24: the file is cut off here"},
		{"record of 4 GiB", record(1<<32-1, 1<<32-1), "offset 24: a frame of 4294967295 bytes; at most 65553 fit the card"},
		{"record snapped", record(60, 1514), "offset 24: only 60 of a frame's 1514 bytes were captured: capture again with a larger snapshot length"},
		{"section cut", ng(le)[:14], "offset 0: the file is cut off here"},
		{"section order", at(ng(le), 8, 7), "offset 0: a section with byte-order magic 07000000"},
		{"section version", at(ng(le), 12, 9), "offset 0: pcapng version 9.0; 1.0 is known"},
		{"section length 12", length(ng(le), 12), "offset 0: a section header of 12 bytes"},
		{"block length 0", ng(le, length(idb(le), 0)), "offset 28: a block of 0 bytes"},
		{"block length 4 GiB", ng(le, length(idb(le), 1<<32-4)), "offset 28: a block of 4294967292 bytes"},
		{"block length odd", ng(le, length(idb(le), 21)), "offset 28: a block of 21 bytes"},
		{"unknown block runs past the end", ng(le, length(block(le, 99, nil), 4000)), "offset 28: the file is cut off here"},
		{"interface block of 12 bytes", ng(le, block(le, 1, nil)), "offset 28: an interface block of 12 bytes"},
		{"interface block of 1 MiB", ng(le, block(le, 1, make([]byte, 1<<20))), "offset 28: an interface block of 1048588 bytes"},
		{"option past its block", ng(le, idb(le, 2, 0, 200, 0)), "offset 28: option 2 of 200 bytes runs past its interface block"},
		{"resolution", ng(le, idb(le, 9, 0, 1, 0, 20, 0, 0, 0)), "offset 28: time resolution 0x14"},
		{"resolution, binary", ng(le, idb(le, 9, 0, 1, 0, 0xff, 0, 0, 0)), "offset 28: time resolution 0xff"},
		{"interfaces without end", ng(le, bytes.Repeat(idb(le), 1025)), "offset 20508: more than 1024 interfaces"},
		{"frame without interface", ng(le, epb(le, 0, 0, data)), "offset 28: a frame before the first interface"},
		{"frame of another interface", ng(le, idb(le), epb(le, 1, 0, data)), "offset 48: a frame of interface 1; 1 are described"},
		{"frame longer than its block", ng(le, idb(le), at(epb(le, 0, 0, data), 20, 61)), "offset 48: a frame of 61 bytes in a block with room for 60"},
		{"packet block of 12 bytes", ng(le, idb(le), block(le, 6, nil)), "offset 48: a packet block of 12 bytes"},
		{"simple block of 12 bytes", ng(le, idb(le), block(le, 3, nil)), "offset 48: a packet block of 12 bytes"},
		{"simple block snapped", ng(le, idb(le), at(simple(le, data), 8, 100)), "offset 48: only 60 of a frame's 100 bytes were captured: capture again with a larger snapshot length"},
		{"time of no year", ng(le, idb(le), epb(le, 0, 1<<64-1, data)), "offset 48: a time outside the years 1970 to 2262"},
		{"time before 1970", ng(le, idb(le, 14, 0, 8, 0, 255, 255, 255, 255, 255, 255, 255, 255), epb(le, 0, 0, data)), "offset 60: a time outside the years 1970 to 2262"},
		{"radio link", ng(le, at(idb(le), 8, 127), epb(le, 0, 0, data)), "offset 48: link type 127; a port reads Ethernet (1) only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := save(t, tt.file)
			_, err := port.OpenPcap(file, "")
			if err == nil {
				t.Fatal("no error")
			}
			if got, want := err.Error(), "read capture "+file+": "+tt.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			var bad *port.FormatError
			if !errors.As(err, &bad) {
				t.Errorf("%T is no FormatError", err)
			}
		})
	}
}

func TestPcapFiles(t *testing.T) {
	in := capture(t, "in.pcap", shots(0))
	dir := filepath.Dir(in)
	for _, tt := range []struct{ name, in, out, want string }{
		{"no input", filepath.Join(dir, "none"), "", "no such file"},
		{"directory", dir, "", "not a regular file"},
		{"output is the input", in, in, "it is the input"},
		{"output in no directory", in, filepath.Join(dir, "none", "out"), "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := port.OpenPcap(tt.in, tt.out); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if st, err := os.Stat(in); err != nil || st.Size() == 0 {
		t.Errorf("the input was harmed: %v, %v", st, err)
	}
	t.Run("full disk", func(t *testing.T) {
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skip("needs /dev/full")
		}
		p := open(t, "", "/dev/full")
		f := wrap(make([]byte, 1500), frame.Offload{})
		taken := 0
		for range 1000 { // more than is buffered
			taken += p.Transmit([]*frame.Frame{f})
		}
		if err := p.Close(); taken == 1000 || err == nil {
			t.Errorf("took %d frames, error %v", taken, err)
		}
	})
	t.Run("input cut while it is read", func(t *testing.T) {
		long := make([]shot, 100)
		for i := range long {
			long[i].Bytes = make([]byte, 1514)
		}
		file := capture(t, "in.pcap", long)
		p := open(t, file, "")
		if err := os.Truncate(file, 80*1024); err != nil {
			t.Fatal(err)
		}
		got := len(receive(p))
		if err := p.Close(); got == 100 || err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("%d frames, then %v", got, err)
		}
	})
}

func TestPcapAllocates(t *testing.T) {
	var ss []shot
	for i := range 400 {
		ss = append(ss, shot{time.Duration(i), make([]byte, 1514)})
	}
	for _, name := range []string{"x.pcap", "x.pcapng"} {
		p := open(t, capture(t, name, ss), filepath.Join(t.TempDir(), "out-"+name))
		fs := buffers(2, p.BufferBytes())
		out := []*frame.Frame{&fs[0], &fs[1]}
		n := testing.AllocsPerRun(100, func() {
			if p.Receive(fs) != 2 || p.Transmit(out) != 2 {
				t.Fatal("short batch")
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkPcap(b *testing.B) {
	for _, name := range []string{"out.pcap", "out.pcapng"} {
		b.Run(fmt.Sprintf("transmit=%s", name), func(b *testing.B) {
			p, err := port.OpenPcap("", filepath.Join(b.TempDir(), name))
			if err != nil {
				b.Fatal(err)
			}
			fs := []*frame.Frame{wrap(make([]byte, 64), frame.Offload{})}
			b.ReportAllocs()
			for b.Loop() {
				p.Transmit(fs)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			if err := p.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}
