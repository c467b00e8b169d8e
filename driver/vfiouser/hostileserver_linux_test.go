package vfiouser

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// fakeServer answers one client as a foreign server would: no capabilities of ours, one socket. twist may answer in its
// place, and says whether it did.
func fakeServer(t *testing.T, twist func(r *rawClient, m message) bool) (path string, done chan struct{}) {
	t.Helper()
	path = filepath.Join(shm(t), "fake")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer ln.Close()
		sock, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		c, err := newConn(sock)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.close()
		r := &rawClient{t: t, c: c}
		for {
			m, err := c.read(time.Now().Add(late))
			if err != nil {
				c.drop()
				return
			}
			if (twist == nil || !twist(r, m)) && !m.reply() {
				r.answer(m)
			}
			closeAll(m.fds)
		}
	}()
	return path, done
}

// try sends what the other end may not wait for any more.
func (r *rawClient) try(id uint16, cmd command, flags uint32, payload []byte, fds ...int) {
	b := append(start(nil), payload...)
	putHeader(b, header{id: id, cmd: cmd, flags: flags})
	r.c.write(b, fds)
}

// answer gives the reply of a card with two BARs of a page and two vectors.
func (r *rawClient) answer(m message) {
	if m.noReply() {
		return
	}
	var out []byte
	switch m.cmd {
	case cmdVersion:
		out = []byte{0, 0, 0, 0}
	case cmdDeviceInfo:
		out = appendDeviceInfo(nil, deviceInfo{16, deviceReset | devicePCI, regionCount, irqIndexes})
	case cmdRegionInfo:
		i, _ := decodeRegionInfo(m.body)
		size := map[uint32]uint64{0: 4096, 2: 4096, regionConfig: 256}[i.index]
		out = appendRegionInfo(nil, regionInfo{argsz: 32, flags: 3, index: i.index, size: size})
	case cmdIRQInfo:
		i, _ := decodeIRQInfo(m.body)
		i.count = map[uint32]uint32{irqMSIX: 2}[i.index]
		out = appendIRQInfo(nil, irqInfo{16, irqEventfd, i.index, i.count})
	case cmdRegionRead:
		a, _ := decodeRegionAccess(m.body, false)
		a.data = make([]byte, a.count)
		out = appendRegionAccess(nil, a)
	case cmdDMAUnmap:
		out = m.body
	}
	r.try(m.id, m.cmd, typeReply, out)
}

func fakeOptions() Options {
	return Options{Name: "card", Memfd: true, Timeout: 100 * time.Millisecond}
}

// TestForeignServer: a server that knows nothing of ours serves as well.
func TestForeignServer(t *testing.T) {
	before := countFDs(t)
	path, done := fakeServer(t, nil)
	c, err := Dial(t.Context(), path, fakeOptions())
	if err != nil {
		t.Fatal(err)
	}
	if i := c.Info(); i.Vectors != 2 || i.NUMANode != -1 || len(i.IOVA) != 2 || i.Regions[device.Bar2].Size != 4096 {
		t.Errorf("Info: %+v", i)
	}
	m, err := c.AllocDMA("ring", 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.EnableVectors(2), c.EnableVectors(1), m.Close(), c.Reset(), c.Close()); err != nil {
		t.Error(err)
	}
	<-done
	if n := countFDs(t); n > before {
		t.Errorf("%d file descriptors, %d before", n, before)
	}
}

// on answers one command with something else, after the first `skip` of them.
func on(cmd command, skip int, do func(r *rawClient, m message)) func(*rawClient, message) bool {
	return func(r *rawClient, m message) bool {
		if m.cmd != cmd {
			return false
		}
		if skip--; skip >= 0 {
			return false
		}
		do(r, m)
		return true
	}
}

func payload(b []byte, fds ...int) func(r *rawClient, m message) {
	return func(r *rawClient, m message) { r.try(m.id, m.cmd, typeReply, b, fds...) }
}

// TestHostileServer: whatever a server answers during Dial, Dial ends with an error and leaves nothing behind.
func TestHostileServer(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	memfd := testMemfd(t, 4096)
	info := func(i regionInfo) []byte { return appendRegionInfo(nil, i) }
	sparse := func(areas ...Area) []byte {
		return info(regionInfo{regionInfoSize(len(areas)), regionRead | regionWrite | regionMmap | regionCaps, 0, 32, 0x4000, 0, areas})
	}
	text := func(s string) []byte { return append([]byte{0, 0, 1, 0}, s...) }
	for _, row := range []struct {
		name  string
		twist func(*rawClient, message) bool
	}{
		{"silence", on(cmdVersion, 0, func(*rawClient, message) {})},
		{"closes", on(cmdVersion, 0, func(r *rawClient, _ message) { r.c.close() })},
		{"closes later", on(cmdIRQInfo, 0, func(r *rawClient, _ message) { r.c.close() })},
		{"garbage", on(cmdVersion, 0, func(r *rawClient, _ message) { r.c.sock.Write(make([]byte, 4096)) })},
		{"ones", on(cmdVersion, 0, func(r *rawClient, _ message) { r.c.sock.Write(bytesOf(0xff, 4096)) })},
		{"stops in a reply", on(cmdVersion, 0, func(r *rawClient, m message) {
			r.c.sock.Write(message16(m.id, m.cmd, 64, typeReply))
			r.c.close()
		})},
		{"other id", on(cmdVersion, 0, func(r *rawClient, m message) { r.try(m.id+1, m.cmd, typeReply, []byte{0, 0, 0, 0}) })},
		{"other command", on(cmdDeviceInfo, 0, func(r *rawClient, m message) { r.try(m.id, cmdIRQInfo, typeReply, make([]byte, 16)) })},
		{"twice", on(cmdDeviceInfo, 0, func(r *rawClient, m message) { r.answer(m); r.answer(m); r.answer(m) })},
		{"error", on(cmdDeviceInfo, 0, func(r *rawClient, m message) { r.c.reply(m.header, eIO) })},
		{"error without number", on(cmdDeviceInfo, 0, func(r *rawClient, m message) { r.try(m.id, m.cmd, typeReply|flagError, nil) })},
		{"version 1", on(cmdVersion, 0, payload([]byte{1, 0, 0, 0}))},
		{"version 0.9", on(cmdVersion, 0, payload([]byte{0, 0, 9, 0}))},
		{"version short", on(cmdVersion, 0, payload([]byte{0, 0}))},
		{"version of no json", on(cmdVersion, 0, payload(text("{]")))},
		{"second socket without one", on(cmdVersion, 0, payload(text(`{"capabilities":{"twin_socket":{"supported":true}}}`)))},
		{"second socket 1 of 1", on(cmdVersion, 0, payload(text(`{"capabilities":{"twin_socket":{"supported":true,"fd_index":1}}}`), memfd))},
		{"second socket is a file", on(cmdVersion, 0, payload(text(`{"capabilities":{"twin_socket":{"supported":true,"fd_index":0}}}`), memfd))},
		{"a flood of files", on(cmdVersion, 0, payload([]byte{0, 0, 0, 0}, dupSlice(memfd, 200)...))},
		{"info short", on(cmdDeviceInfo, 0, payload(make([]byte, 8)))},
		{"not pci", on(cmdDeviceInfo, 0, payload(appendDeviceInfo(nil, deviceInfo{16, 1, 9, 5})))},
		{"few regions", on(cmdDeviceInfo, 0, payload(appendDeviceInfo(nil, deviceInfo{16, 3, 7, 5})))},
		{"no msi-x", on(cmdDeviceInfo, 0, payload(appendDeviceInfo(nil, deviceInfo{16, 3, 9, 2})))},
		{"region short", on(cmdRegionInfo, 0, payload(make([]byte, 16)))},
		{"region of another number", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, index: 5})))},
		{"region without its file", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, flags: 7, size: 4096})))},
		{"region with two files", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, flags: 7, size: 4096}), memfd, memfd))},
		{"region at an odd offset", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, flags: 7, size: 4096, offset: 5}), memfd))},
		{"region at a negative offset", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, flags: 7, size: 4096, offset: 1<<64 - 4096}), memfd))},
		{"region of half a page", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, flags: 7, size: 100}), memfd))},
		{"region of 16 EiB", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, flags: 7, size: 1<<64 - 4096}), memfd))},
		{"region of /dev/null", on(cmdRegionInfo, 0, payload(info(regionInfo{argsz: 32, flags: 7, size: 4096}), int(null.Fd())))},
		{"areas that overlap", on(cmdRegionInfo, 0, payload(sparse(Area{0, 0x2000}, Area{0x1000, 0x1000}), memfd))},
		{"area beyond", on(cmdRegionInfo, 0, payload(sparse(Area{0x3000, 0x2000}), memfd))},
		{"no configuration space", on(cmdRegionInfo, regionConfig, payload(info(regionInfo{argsz: 32, index: regionConfig})))},
		{"irqs short", on(cmdIRQInfo, 0, payload(make([]byte, 4)))},
		{"irqs of another number", on(cmdIRQInfo, 0, payload(appendIRQInfo(nil, irqInfo{16, 1, 0, 1})))},
		{"vectors without end", on(cmdIRQInfo, 0, payload(appendIRQInfo(nil, irqInfo{16, 1, irqMSIX, 1 << 31})))},
		{"configuration space short", on(cmdRegionRead, 0, payload(make([]byte, 16)))},
		{"configuration space of another place", on(cmdRegionRead, 0, func(r *rawClient, m message) {
			a, _ := decodeRegionAccess(m.body, false)
			a.offset, a.data = 8, make([]byte, a.count)
			r.try(m.id, m.cmd, typeReply, appendRegionAccess(nil, a))
		})},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := countFDs(t)
			path, done := fakeServer(t, row.twist)
			c, err := Dial(t.Context(), path, fakeOptions())
			if err == nil {
				t.Error("Dial succeeded")
				c.Close()
			}
			var op *device.OpError
			if err != nil && (!errors.As(err, &op) || op.Op != "open") {
				t.Errorf("Dial: %v, want an OpError", err)
			}
			<-done
			if n := countFDs(t); n > before {
				t.Errorf("%d file descriptors, %d before", n, before)
			}
		})
	}
}

func bytesOf(v byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = v
	}
	return b
}

// TestServerTurnsBad: a server that goes wrong after Dial costs the device, at once.
func TestServerTurnsBad(t *testing.T) {
	load := func(c *Client) error { c.Load32(0, 0); return c.Err() }
	alloc := func(c *Client) error { _, err := c.AllocDMA("x", 4096); return err }
	for _, row := range []struct {
		name  string
		twist func(*rawClient, message) bool
		use   func(*Client) error
		want  error
		lives bool
	}{
		{"load refused", on(cmdRegionRead, 1, func(r *rawClient, m message) { r.c.reply(m.header, eINVAL) }), load, device.ErrRange, false},
		{"load cut", on(cmdRegionRead, 1, payload(make([]byte, 18))), load, errProtocol, false},
		{"load unanswered", on(cmdRegionRead, 1, func(*rawClient, message) {}), load, device.ErrDeviceLost, false},
		{"load of more", on(cmdRegionRead, 1, payload(appendRegionAccess(nil, regionAccess{0, 0, 8, make([]byte, 8)}))), load, errProtocol, false},
		{"map refused", on(cmdDMAMap, 0, func(r *rawClient, m message) { r.c.reply(m.header, eNOSPC) }), alloc, eNOSPC, true},
		{"map over another", on(cmdDMAMap, 0, func(r *rawClient, m message) { r.c.reply(m.header, eEXIST) }), alloc, device.ErrDMA, true},
		{"map unanswered", on(cmdDMAMap, 0, func(*rawClient, message) {}), alloc, device.ErrDeviceLost, false},
		{"vectors refused", on(cmdSetIRQs, 0, func(r *rawClient, m message) { r.c.reply(m.header, eINVAL) }), func(c *Client) error { return c.EnableVectors(2) }, device.ErrRange, true},
		{"reset refused", on(cmdReset, 0, func(r *rawClient, m message) { r.c.reply(m.header, eNODEV) }), (*Client).Reset, device.ErrDeviceLost, true},
		{"a command nobody knows", on(cmdReset, 0, func(r *rawClient, m message) {
			r.try(1, cmdDeviceFeature, 0, nil)
			r.answer(m)
		}), (*Client).Reset, nil, true},
		{"a read of nowhere", on(cmdReset, 0, func(r *rawClient, m message) {
			r.try(1, cmdDMARead, 0, appendDMAAccess(nil, dmaAccess{iova: 0x1000, count: 1 << 20}))
			r.try(2, cmdDMAWrite, flagNoReply, appendDMAAccess(nil, dmaAccess{0x1000, 4, make([]byte, 4)}))
			r.try(3, cmdDMARead, 0, []byte{1})
			r.answer(m)
		}), (*Client).Reset, nil, true},
		{"a reply to nothing", on(cmdReset, 0, func(r *rawClient, m message) { r.try(99, cmdReset, typeReply, nil) }), (*Client).Reset, device.ErrDeviceLost, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := countFDs(t)
			path, done := fakeServer(t, row.twist)
			c, err := Dial(t.Context(), path, fakeOptions())
			if err != nil {
				t.Fatal(err)
			}
			if err := row.use(c); row.want == nil && err != nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
			if err := c.Err(); (err == nil) != row.lives {
				t.Errorf("Err = %v", err)
			}
			if err := c.Close(); err != nil && !row.lives {
				t.Errorf("Close: %v", err)
			}
			<-done
			if n := countFDs(t); n > before {
				t.Errorf("%d file descriptors, %d before", n, before)
			}
		})
	}
}

// TestServesDMA: memory whose file the server did not keep is read and written by its messages.
func TestServesDMA(t *testing.T) {
	asked := make(chan message, 1)
	path, done := fakeServer(t, func(r *rawClient, m message) bool {
		if m.reply() {
			m.body = append([]byte(nil), m.body...)
			asked <- m
			return true
		}
		if m.cmd != cmdReset {
			return false
		}
		for i, a := range []dmaAccess{{0x2ffc, 8, []byte("abcdefgh")}, {0x1000, 4, []byte("1234")}} {
			r.try(uint16(i), cmdDMAWrite, flagNoReply, appendDMAAccess(nil, a))
		}
		r.try(7, cmdDMARead, 0, appendDMAAccess(nil, dmaAccess{iova: 0x2ff8, count: 16}))
		r.answer(m)
		return true
	})
	o := fakeOptions()
	o.NoGuard = true
	c, err := Dial(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	var ms []*device.DMA
	for range 2 {
		m, err := c.AllocDMA("x", 8192)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	if ms[0].IOVA != 0x1000 || ms[1].IOVA != 0x3000 {
		t.Fatalf("memory at %#x and %#x", ms[0].IOVA, ms[1].IOVA)
	}
	if _, err := c.ask(cmdReset, nil, nil); err != nil {
		t.Fatal(err)
	}
	m := <-asked
	if a, err := decodeDMAAccess(m.body, true); err != nil || m.id != 7 || string(a.data) != "\x00\x00\x00\x00abcdefgh\x00\x00\x00\x00" {
		t.Errorf("read across two buffers: %+v, %v", a, err)
	}
	if string(ms[0].Bytes[:4]) != "1234" || string(ms[1].Bytes[:4]) != "efgh" {
		t.Errorf("memory holds %q and %q", ms[0].Bytes[:4], ms[1].Bytes[:4])
	}
	c.Close()
	<-done
}

// FuzzServer answers Dial and a load with arbitrary bytes: no panic, no hang, no file descriptor left.
func FuzzServer(f *testing.F) {
	good := message16(1, cmdVersion, 20, typeReply)
	f.Add(append(good, 0, 0, 0, 0))
	f.Add(append(append(append([]byte(nil), good...), 0, 0, 1, 0), append(message16(2, cmdDeviceInfo, 32, typeReply), appendDeviceInfo(nil, deviceInfo{16, 3, 9, 5})...)...))
	f.Add(append(message16(1, cmdDMARead, 32, 0), appendDMAAccess(nil, dmaAccess{iova: 0x1000, count: 4096})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(shm(t), "fake")
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			sock, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			defer sock.Close()
			sock.Write(b)
			sock.CloseWrite()
			io.Copy(io.Discard, sock)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), late)
		defer cancel()
		c, err := Dial(ctx, path, fakeOptions())
		if err == nil {
			c.Load32(0, 0)
			c.Close()
		}
		if ctx.Err() != nil {
			t.Errorf("Dial hangs: %v", err)
		}
		<-done
	})
}

// TestHuge: memory comes from huge pages where there are some, and from ordinary ones where there are not.
func TestHuge(t *testing.T) {
	dir := filepath.Join(shm(t), "huge")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		t.Skip("needs the right to mount a hugetlbfs (root): ", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	const pages = "/proc/sys/vm/nr_hugepages"
	old, err := os.ReadFile(pages)
	if err != nil {
		t.Skip("needs huge pages: ", err)
	}
	defer os.WriteFile(pages, old, 0)
	if err := os.WriteFile(pages, []byte("3"), 0); err != nil {
		t.Skip("needs the right to reserve huge pages: ", err)
	}
	if got, _ := os.ReadFile(pages); string(got) != "3\n" {
		t.Skipf("needs three free huge pages of 2 MiB, has %s", got)
	}
	path, _ := rawServer(t, newPCICard(), Config{})
	o := Options{Name: "card", Dir: filepath.Join(filepath.Dir(path), "dma"), HugeDirs: []string{filepath.Join(dir, "card")}}
	c, err := Dial(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		size        int
		bytes, page uint64
	}{{4096, 4096, 4096}, {3 << 20, 4 << 20, 2 << 20}, {4 << 20, 4 << 20, 4096}, {1 << 20, 2 << 20, 2 << 20}} {
		m, err := c.AllocDMA("x", row.size)
		if err != nil {
			t.Fatal(err)
		}
		i := c.Memory()
		var got Memory
		for _, x := range i {
			if x.IOVA == m.IOVA {
				got = x
			}
		}
		if got.Bytes != row.bytes || got.PageBytes != row.page || m.IOVA%row.page != 0 {
			t.Errorf("%d bytes: %+v", row.size, got)
		}
	}
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	o.Reattach = true
	if c, err = Dial(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	if n := len(c.Memory()); n != 4 {
		t.Errorf("%d allocations found again", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
