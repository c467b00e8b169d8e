package vfiouser

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// TestReadState meets what is no state file: it waits for nobody, follows nothing and quotes nothing.
func TestReadState(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(path string) error
		says   string // empty: there is nothing
	}{
		{"none", func(string) error { return nil }, ""},
		{"pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }, "no regular file; remove it"},
		{"folder", func(path string) error { return os.Mkdir(path, 0o700) }, "no regular file; remove it"},
		{"link", func(path string) error { return os.Symlink("/etc/passwd", path) }, "no regular file; remove it"},
		{"link to nothing", func(path string) error { return os.Symlink("/no/such/file", path) }, "no regular file; remove it"},
		{"huge", func(path string) error { return os.WriteFile(path, make([]byte, maxState+1), 0o600) }, "more than 1048576 bytes"},
		{"text", func(path string) error { return os.WriteFile(path, []byte("secret"), 0o600) }, "remove it, and rings start anew"},
		{"a number", func(path string) error { return os.WriteFile(path, []byte(`{"version": "secret"}`), 0o600) }, "remove it, and rings start anew"},
		{"names", func(path string) error {
			return os.WriteFile(path, []byte(`{"version": 1, "memory": [{"name": "secret"}, {"name": "a", "dir": "/secret"}]}`), 0o600)
		}, "remove it, and rings start anew"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, stateName)
			if err := tt.change(path); err != nil {
				t.Fatal(err)
			}
			es, err := readState(dir, nil)
			switch {
			case tt.says == "":
				if err != nil {
					t.Error(err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "secret"):
				t.Errorf("got %v, want %q about %s", err, tt.says, path)
			}
			if es != nil {
				t.Errorf("entries %v", es)
			}
			if holder, user := readLock(path); holder != 0 || user != 0 {
				t.Errorf("lock of %d and %d", holder, user)
			}
		})
	}
}

// TestTable compares the table with a flag for each page, over random maps, unmaps and accesses.
func TestTable(t *testing.T) {
	const page, pages = 0x1000, 3000
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var tab table
		var start [pages]int // of each page: where its mapping starts, +1
		size := map[int]int{}
		insert := func() {
			at, n := rng.IntN(pages), 1+rng.IntN(3)
			free := at+n <= pages
			for i := at; free && i < at+n; i++ {
				free = start[i] == 0
			}
			if at+n > pages {
				return
			}
			if ok := tab.insert(mapping{iova: uint64(at) * page, last: uint64(at+n)*page - 1, read: true, write: true}); ok != free {
				t.Fatalf("seed %d: insert %d+%d = %v, want %v", seed, at, n, ok, free)
			}
			if free {
				size[at] = n
				for i := at; i < at+n; i++ {
					start[i] = at + 1
				}
			}
		}
		remove := func() {
			at, n := rng.IntN(pages), 1+rng.IntN(40)
			end := min(at+n, pages)
			whole := start[at] == 0 || start[at] == at+1
			whole = whole && (end == pages || start[end] == 0 || start[end] == end+1)
			want := 0
			for i := at; i < end; i++ {
				if start[i] == i+1 {
					want++
				}
			}
			ms, ok := tab.inside(uint64(at)*page, uint64(end)*page-1)
			if ok != whole || ok && len(ms) != want {
				t.Fatalf("seed %d: inside %d-%d: %d, %v, want %d, %v", seed, at, end, len(ms), ok, want, whole)
			}
			if !ok {
				return
			}
			tab.remove(uint64(at)*page, uint64(end)*page-1)
			for i := at; i < end; i++ {
				delete(size, i)
				start[i] = 0
			}
		}
		look := func() {
			at, n := rng.IntN(pages), rng.IntN(10)
			want := at+n <= pages
			for i := at; want && i < at+n; i++ {
				want = start[i] != 0
			}
			c, ok := tab.cover(uint64(at)*page+8, uint64(n)*page, true)
			if n > 0 {
				want = want && at+n < pages && start[at+n] != 0
			}
			if ok != (want || n == 0) {
				t.Fatalf("seed %d: cover %d+%d = %v, want %v", seed, at, n, ok, want)
			}
			if ok && n > 0 && tab.at(c).iova != uint64(start[at]-1)*page {
				t.Fatalf("seed %d: cover %d starts at %#x", seed, at, tab.at(c).iova)
			}
		}
		for i := range 30_000 {
			if r := rng.IntN(100); r < 60 {
				insert()
			} else if r < 62+i/2000 {
				remove()
			} else {
				look()
			}
			if tab.n != len(size) {
				t.Fatalf("seed %d: %d mappings, want %d", seed, tab.n, len(size))
			}
		}
		last := uint64(0)
		for i, m := range tab.all() {
			if i > 0 && m.iova <= last || size[int(m.iova/page)] != int(m.size()/page) {
				t.Fatalf("seed %d: mapping %d at %#x, %#x bytes", seed, i, m.iova, m.size())
			}
			last = m.last
		}
		for _, k := range tab.chunks {
			if len(k) == 0 || len(k) > chunkLen {
				t.Errorf("seed %d: a chunk of %d", seed, len(k))
			}
		}
	}
}

// TestTableEnd: a mapping that ends the address space.
func TestTableEnd(t *testing.T) {
	var tab table
	top := ^uint64(0)
	if !tab.insert(mapping{iova: top - 0xfff, last: top, read: true}) {
		t.Fatal("not inserted")
	}
	for _, row := range []struct {
		iova, n uint64
		write   bool
		want    bool
	}{
		{top - 3, 4, false, true}, {top - 3, 5, false, false}, {top, 1, false, true}, {top - 3, 4, true, false}, {0, 0, false, true}, {0, 1, false, false},
	} {
		if _, ok := tab.cover(row.iova, row.n, row.write); ok != row.want {
			t.Errorf("cover(%#x, %d, %v) = %v", row.iova, row.n, row.write, ok)
		}
	}
	tab.remove(0, top)
	if tab.n != 0 || len(tab.chunks) != 0 {
		t.Errorf("%d mappings left", tab.n)
	}
}

func testMemfd(t testing.TB, n int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, n); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestHostMemory: bus mastering, rights, words, and a file that is cut short under us.
func TestHostMemory(t *testing.T) {
	var h hostMemory
	var f files
	fd := testMemfd(t, 0x4000)
	for i, m := range []mapping{
		{iova: 0x1000, last: 0x1fff, offset: 0x3000, read: true, write: true},
		{iova: 0x2000, last: 0x2fff, offset: 0x0000, read: true, write: true},
		{iova: 0x3000, last: 0x3fff, offset: 0x1000, read: true},
	} {
		file, err := f.use(fd, m.offset, m.size(), m.write)
		if err != nil {
			t.Fatal(err)
		}
		m.file, m.mem = file, file.mem[m.offset:][:m.size()]
		if !h.maps.insert(m) {
			t.Fatalf("mapping %d not inserted", i)
		}
	}
	if len(f.open) != 1 {
		t.Errorf("%d files mapped, want one for all", len(f.open))
	}
	p := bytes.Repeat([]byte{1, 2, 3, 4}, 8)
	if err := h.Write(0x1ff0, p); !errors.Is(err, device.ErrDMA) {
		t.Errorf("Write without bus mastering: %v", err)
	}
	if _, err := h.Load32(0x1000); !errors.Is(err, device.ErrDMA) {
		t.Errorf("Load32 without bus mastering: %v", err)
	}
	h.master.Store(true)
	if err := h.Write(0x1ff0, p); err != nil {
		t.Error(err)
	}
	got := make([]byte, len(p))
	if err := h.Read(0x1ff0, got); err != nil || !bytes.Equal(got, p) {
		t.Errorf("Read: %x, %v", got, err)
	}
	if v, err := h.Load32(0x2000); v != 0x04030201 || err != nil {
		t.Errorf("Load32 = %#x, %v", v, err)
	}
	if err := h.Store32(0x2ffc, 7); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"Write into read-only memory": h.Write(0x2ff8, p),
		"Store32 there":               h.Store32(0x3000, 1),
		"Store32 misaligned":          h.Store32(0x2001, 1),
		"Read beyond":                 h.Read(0x3ff0, p),
	} {
		if !errors.Is(err, device.ErrDMA) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, _ := h.Load32(0x2ffc); v != 7 {
		t.Errorf("a refused write changed memory: %#x", v)
	}
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	if err := h.Read(0x1000, got); !errors.Is(err, device.ErrDMA) {
		t.Errorf("Read of a file cut short: %v", err)
	}
	if err := h.Store32(0x1000, 1); !errors.Is(err, device.ErrDMA) {
		t.Errorf("Store32 to a file cut short: %v", err)
	}
	for _, m := range h.maps.all() {
		if err := f.release(m.file); err != nil {
			t.Error(err)
		}
	}
	if len(f.open) != 0 {
		t.Errorf("%d files still mapped", len(f.open))
	}
}

// TestFiles: what is not a file, or not enough of one, is refused.
func TestFiles(t *testing.T) {
	var f files
	fd := testMemfd(t, 0x2000)
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer closeAll(pipe)
	readOnly, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(readOnly)
	for _, row := range []struct {
		name         string
		fd           int
		offset, size uint64
		write        bool
	}{
		{"pipe", pipe[0], 0, 0x1000, false},
		{"closed", 1 << 20, 0, 0x1000, false},
		{"beyond the end", fd, 0x2000, 0x1000, true},
		{"across the end", fd, 0x1000, 0x2000, true},
		{"wraps", fd, 0x1000, ^uint64(0) - 0xfff, true},
		{"read-only for writing", readOnly, 0, 0x1000, true},
	} {
		if _, err := f.use(row.fd, row.offset, row.size, row.write); err == nil {
			t.Errorf("%s: taken", row.name)
		}
	}
	// A file that grew is mapped again; the old mapping stays while it is used.
	a, err := f.use(fd, 0, 0x1000, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 0x8000); err != nil {
		t.Fatal(err)
	}
	b, err := f.use(fd, 0x7000, 0x1000, true)
	if err != nil || a == b {
		t.Fatalf("%p, %p, %v", a, b, err)
	}
	b.mem[0] = 9
	if a.mem[0] != 9 {
		t.Error("two mappings of one file differ")
	}
	if err := errors.Join(f.release(a), f.release(b)); err != nil || len(f.open) != 0 {
		t.Errorf("%v, %d open", err, len(f.open))
	}
}

func BenchmarkTable(b *testing.B) {
	const page = 0x1000
	b.Run("map a page of 65535", func(b *testing.B) {
		var tab table
		i := uint64(0)
		for b.Loop() {
			if i == maxMaps {
				tab, i = table{}, 0
			}
			tab.insert(mapping{iova: i * page, last: i*page + page - 1})
			i++
		}
	})
	b.Run("map a page anywhere", func(b *testing.B) {
		var tab table
		rng := rand.New(rand.NewPCG(1, 1))
		for b.Loop() {
			if tab.n == maxMaps {
				tab = table{}
			}
			at := rng.Uint64N(1<<40) * page
			tab.insert(mapping{iova: at, last: at + page - 1})
		}
	})
	b.Run("find", func(b *testing.B) {
		var tab table
		for i := range uint64(8192) {
			tab.insert(mapping{iova: i * page, last: i*page + page - 1, read: true})
		}
		i := uint64(0)
		for b.Loop() {
			tab.cover(i%8192*page, 64, false)
			i += 37
		}
	})
}

func BenchmarkHostMemory(b *testing.B) {
	var h hostMemory
	h.master.Store(true)
	mem := make([]byte, 1<<20)
	h.maps.insert(mapping{iova: 0x100000, last: 0x1fffff, mem: mem, read: true, write: true})
	p := make([]byte, 64)
	b.Run("write 64", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Write(0x100040, p)
		}
	})
	b.Run("load32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Load32(0x100040)
		}
	})
}
