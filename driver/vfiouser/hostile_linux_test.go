package vfiouser

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// countFDs counts this process's file descriptors but the runtime's own.
func countFDs(t testing.TB) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc to count file descriptors")
	}
	n := 0
	for _, e := range es {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "/proc/") && !strings.Contains(to, "eventpoll") {
			n++
		}
	}
	return n
}

func message16(id uint16, cmd command, size, flags uint32) []byte {
	b := make([]byte, headerBytes)
	putHeader(b, header{id: id, cmd: cmd, flags: flags})
	le.PutUint32(b[4:], size)
	return b
}

// TestHostileClient: whatever a client sends, it gets an error reply or the end, and the next client a working card.
func TestHostileClient(t *testing.T) {
	card := newPCICard()
	path, stop := rawServer(t, card, Config{})
	hello := append(message16(1, cmdVersion, headerBytes+4, 0), 0, 0, 1, 0)
	withHello := func(b ...[]byte) []byte {
		all := append([]byte(nil), hello...)
		for _, x := range b {
			all = append(all, x...)
		}
		return all
	}
	before := countFDs(t)
	for name, bytes := range map[string][]byte{
		"nothing":                     nil,
		"half a header":               {1, 0, 1},
		"zeros":                       make([]byte, 4096),
		"all ones":                    []byte(strings.Repeat("\xff", 4096)),
		"text":                        []byte("GET / HTTP/1.1\r\nHost: card\r\n\r\n"),
		"not a version":               message16(1, cmdReset, 16, 0),
		"version without end":         append(message16(1, cmdVersion, 1<<20, 0), "{"...),
		"version of major 1":          append(message16(1, cmdVersion, 20, 0), 1, 0, 0, 0),
		"version as a reply":          append(message16(1, cmdVersion, 20, typeReply), 0, 0, 0, 0),
		"version not to be answered":  append(message16(1, cmdVersion, 20, flagNoReply), 0, 0, 0, 0),
		"version of bad json":         append(message16(1, cmdVersion, 24, 0), "\x00\x00\x00\x00{]}\x00"...),
		"a message of 15 bytes":       withHello(message16(2, cmdReset, 15, 0)),
		"a message of 4 GiB":          withHello(message16(2, cmdRegionWrite, 0xffffffff, 0)),
		"a message that is cut":       withHello(message16(2, cmdRegionWrite, 64, 0), []byte("cut")),
		"type 7":                      withHello(message16(2, cmdReset, 16, 7)),
		"version again":               withHello(hello, hello),
		"reads far out":               withHello(message16(2, cmdRegionRead, 32, 0), appendRegionAccess(nil, regionAccess{1 << 62, 0, 4, nil})),
		"every command empty":         withHello(everyCommand(nil)),
		"every command with 8 bytes":  withHello(everyCommand(make([]byte, 8))),
		"every command, ones":         withHello(everyCommand([]byte(strings.Repeat("\xff", 48)))),
		"every command, 64 KiB":       withHello(everyCommand(make([]byte, 1<<16))),
		"unmaps everything, resets":   withHello(message16(2, cmdDMAUnmap, 40, 0), unmapReq(0x1000, ^uint64(0)-0x1fff), message16(3, cmdReset, 16, 0)),
		"maps everything without end": withHello(message16(2, cmdDMAMap, 48, flagNoReply), mapReq(0, 1<<63, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			defer sock.Close()
			sock.SetDeadline(time.Now().Add(late))
			if _, err := sock.Write(bytes); err != nil && !strings.Contains(err.Error(), "broken pipe") && !strings.Contains(err.Error(), "reset") {
				t.Errorf("write: %v", err)
			}
			sock.CloseWrite()
			n, err := io.Copy(io.Discard, sock)
			if os.IsTimeout(err) || n > 4<<20 {
				t.Errorf("%d bytes back, %v", n, err)
			}
		})
	}
	r := rawDial(t, path).hello()
	if v := r.load(0, 0); v == 0 {
		t.Error("the card does not work any more")
	}
	r.c.close()
	eventually(t, "the file descriptors are closed", func() bool { return countFDs(t) <= before })
	stop()
}

// everyCommand is one message of each command with the same payload.
func everyCommand(payload []byte) (all []byte) {
	for cmd := command(2); cmd < 24; cmd++ {
		all = append(all, message16(uint16(cmd), cmd, uint32(headerBytes+len(payload)), 0)...)
		all = append(all, payload...)
	}
	return all
}

// TestHostileRequests: well-formed messages that ask for what cannot be.
func TestHostileRequests(t *testing.T) {
	card := newPCICard()
	path, _ := rawServer(t, card, Config{})
	r := rawDial(t, path).hello()
	ram := testMemfd(t, 0x10000)
	event := testEventfd(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := countFDs(t)
	access := func(off uint64, region, n uint32) []byte {
		return appendRegionAccess(nil, regionAccess{offset: off, region: region, count: n})
	}
	for _, row := range []struct {
		name    string
		cmd     command
		payload []byte
		fds     []int
		want    errno
	}{
		{"read beyond", cmdRegionRead, access(4096, 0, 4), nil, eINVAL},
		{"read across the end", cmdRegionRead, access(4092, 0, 8), nil, eINVAL},
		{"read that wraps", cmdRegionRead, access(^uint64(3), 0, 8), nil, eINVAL},
		{"read of a region that is not there", cmdRegionRead, access(0, 1, 4), nil, eINVAL},
		{"read of region 9", cmdRegionRead, access(0, 9, 4), nil, eINVAL},
		{"read of region 4 G", cmdRegionRead, access(0, 0xffffffff, 4), nil, eINVAL},
		{"read of a byte", cmdRegionRead, access(0, 0, 1), nil, eINVAL},
		{"read misaligned", cmdRegionRead, access(2, 0, 4), nil, eINVAL},
		{"read of nothing", cmdRegionRead, access(0, 0, 0), nil, 0},
		{"read of 1 MiB", cmdRegionRead, access(0, 0, 1<<20), nil, eINVAL},
		{"write of two bytes", cmdRegionWrite, appendRegionAccess(nil, regionAccess{0, 0, 2, []byte{1, 2}}), nil, eINVAL},
		{"write to VGA", cmdRegionWrite, storeReq(8, 0, 1), nil, eINVAL},
		{"write over the end of configuration space", cmdRegionWrite, configReq(4094, 1, 2, 3, 4), nil, eINVAL},
		{"region info 9", cmdRegionInfo, appendRegionInfo(nil, regionInfo{argsz: 32, index: 9}), nil, eINVAL},
		{"irq info 5", cmdIRQInfo, appendIRQInfo(nil, irqInfo{argsz: 16, index: 5}), nil, eINVAL},
		{"irqs of index 5", cmdSetIRQs, irqReq(setNone|setTrigger, 5, 0, 0), nil, eINVAL},
		{"vector 4 of 4", cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 4, 1), []int{event}, eINVAL},
		{"a file as an eventfd", cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, 1), []int{ram}, eINVAL},
		{"/dev/null as an eventfd", cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, 1), []int{int(null.Fd())}, eINVAL},
		{"two eventfds for one", cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, 1), []int{event, event}, eINVAL},
		{"map of half a page", cmdDMAMap, mapReq(0x10800, 0x1000, 0), []int{ram}, eINVAL},
		{"map of an odd size", cmdDMAMap, mapReq(0x10000, 0x1001, 0), []int{ram}, eINVAL},
		{"map of two files", cmdDMAMap, mapReq(0x10000, 0x1000, 0), []int{ram, ram}, eINVAL},
		{"map beyond the file", cmdDMAMap, mapReq(0x10000, 0x20000, 0), []int{ram}, eINVAL},
		{"map of an eventfd", cmdDMAMap, mapReq(0x10000, 0x1000, 0), []int{event}, eINVAL},
		{"map of /dev/null", cmdDMAMap, mapReq(0x10000, 0x1000, 0), []int{int(null.Fd())}, eINVAL},
		{"read with a file", cmdRegionRead, access(0, 0, 4), []int{ram}, eINVAL},
		{"reset with a file", cmdReset, nil, []int{ram}, eINVAL},
		{"more files than a message carries", cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, 4), dupSlice(event, 17), eINVAL},
		{"a flood of files", cmdDMAMap, mapReq(0x10000, 0x1000, 0), dupSlice(ram, 253), eINVAL},
		{"version again", cmdVersion, []byte{0, 0, 0, 0}, nil, eINVAL},
	} {
		if _, e := r.call(row.cmd, row.payload, row.fds...); e != row.want {
			t.Errorf("%s: %v, want %v", row.name, e, row.want)
		}
	}
	for i := range 200 { // what was refused leaves nothing behind
		r.call(cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, uint32(i%4), 1), event)
		r.call(cmdDMAMap, mapReq(0x10800, 0x1000, 0), ram)
	}
	r.must(cmdSetIRQs, irqReq(setNone|setTrigger, irqMSIX, 0, 0))
	if n := countFDs(t); n > before {
		t.Errorf("%d file descriptors, %d before", n, before)
	}
}

func dupSlice(fd, n int) []int {
	fds := make([]int, n)
	for i := range fds {
		fds[i] = fd
	}
	return fds
}

// TestManyMaps: a map for each page up to the limit, then no more; they go in one unmap.
func TestManyMaps(t *testing.T) {
	card := newPCICard()
	path, _ := rawServer(t, plainMaps{card}, Config{})
	r := rawDial(t, path).hello()
	ram := testMemfd(t, 0x1000)
	for i := range uint64(maxMaps) {
		r.send(cmdDMAMap, flagNoReply, mapReq((i+1)<<12, 0x1000, 0), ram)
	}
	if _, e := r.call(cmdDMAMap, mapReq((maxMaps+1)<<12, 0x1000, 0), ram); e != eNOSPC {
		t.Errorf("one more: %v, want %v", e, eNOSPC)
	}
	r.must(cmdDMAUnmap, unmapReq(0, 1<<40))
	r.must(cmdDMAMap, mapReq((maxMaps+1)<<12, 0x1000, 0), ram)
}

// plainMaps is a card that takes every map: the scratch card's own search grows with their number.
type plainMaps struct{ *pciCard }

func (plainMaps) MapDMA(iova, size uint64) error   { return nil }
func (plainMaps) UnmapDMA(iova, size uint64) error { return nil }

// TestFileCutShort: a client that shortens its file costs the card an access, not the server its life.
func TestFileCutShort(t *testing.T) {
	card := newPCICard()
	path, _ := rawServer(t, card, Config{})
	r := rawDial(t, path).hello()
	ram := testMemfd(t, 0x4000)
	r.must(cmdDMAMap, mapReq(0x10000, 0x4000, 0), ram)
	r.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	if !r.copied(0x12000, 0x10000, 64) {
		t.Fatal("the card did not copy")
	}
	if err := unix.Ftruncate(ram, 0x1000); err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]uint64{{0x12000, 0x10000}, {0x10000, 0x12000}, {0x11000, 0x10000}} {
		if r.copied(x[0], x[1], 64) || r.copied(x[0], x[1], 4) {
			t.Errorf("the card copied from %#x to %#x", x[1], x[0])
		}
	}
	if !r.copied(0x10100, 0x10000, 64) {
		t.Error("what is left of the file cannot be reached")
	}
}

// FuzzClient sends arbitrary bytes to a server: it ends or answers, and serves the next client.
func FuzzClient(f *testing.F) {
	hello := append(message16(1, cmdVersion, headerBytes+4, 0), 0, 0, 1, 0)
	f.Add(append(append([]byte(nil), hello...), everyCommand(make([]byte, 32))...))
	f.Add(append(append([]byte(nil), hello...), append(message16(2, cmdDMAMap, 48, flagNoReply), mapReq(0x1000, 0x1000, 0)...)...))
	f.Add(append(append([]byte(nil), hello...), append(message16(2, cmdSetIRQs, 36, 0), irqReq(setEventfd|setTrigger, irqMSIX, 0, 1)...)...))
	f.Add([]byte("\x00"))
	path, _ := rawServer(f, newPCICard(), Config{DMATimeout: time.Millisecond})
	f.Fuzz(func(t *testing.T, b []byte) {
		sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close()
		sock.SetDeadline(time.Now().Add(late))
		sock.Write(b)
		sock.CloseWrite()
		if _, err := io.Copy(io.Discard, sock); os.IsTimeout(err) {
			buf := make([]byte, 1<<20)
			t.Fatalf("the server hangs:\n%s", buf[:runtime.Stack(buf, true)])
		}
	})
}
