package port

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"splicenic/emu/frame"
)

// mmsghdr is struct mmsghdr of the kernel. Go pads it as C does.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32 // bytes of the message
}

// controlBytes has room for one control message, PACKET_AUXDATA: its header and struct tpacket_auxdata, both aligned to
// eight bytes.
const controlBytes = int(unsafe.Sizeof(unix.Cmsghdr{})+unsafe.Sizeof(unix.TpacketAuxdata{})+7) &^ 7

// receiveBatch is the memory of a recvmmsg call. A frame's virtio-net header is received into the ten bytes before it.
type receiveBatch struct {
	messages [packetBatch]mmsghdr
	vectors  [packetBatch]unix.Iovec
	controls [packetBatch][controlBytes]byte
}

// call receives up to len(fs) frames, at most packetBatch. Start of each has room for the header and a tag before it.
//
// Every pointer the kernel gets lies in b, which the caller's Packet keeps on the heap, or in a Buf that fs keeps alive;
// vectors and messages hold them as pointers, so the garbage collector sees them, and it moves nothing on the heap. The
// lengths are those of the slices and arrays pointed to. The kernel uses them during the call only.
func (b *receiveBatch) call(fd int, fs []frame.Frame) (int, unix.Errno) {
	for i := range fs {
		f := &fs[i]
		room := f.Buf[f.Start-virtioBytes:]
		v, h := &b.vectors[i], &b.messages[i].hdr
		v.Base = unsafe.SliceData(room)
		v.SetLen(len(room))
		h.Iov = v
		h.SetIovlen(1)
		h.Control = &b.controls[i][0]
		h.SetControllen(controlBytes)
	}
	// MSG_TRUNC: the length of a frame that does not fit is its own, not the buffer's.
	n, _, err := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages)), uintptr(len(fs)),
		unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(n), 0
}

// finish makes message i of the last call a frame.
func (b *receiveBatch) finish(i int, f *frame.Frame) {
	m := &b.messages[i]
	if m.n < virtioBytes { // the kernel never does that
		f.End, f.Offload = f.Start, frame.Offload{}
		return
	}
	f.Offload = decodeOffload((*[virtioBytes]byte)(f.Buf[f.Start-virtioBytes:]))
	f.End = f.Start + m.n - virtioBytes
	if int(f.End) > len(f.Buf) || m.n < virtioBytes+ethernetBytes {
		return
	}
	if tpid, tci, ok := tag(b.controls[i][:min(int(m.hdr.Controllen), controlBytes)]); ok {
		putTag(f, tpid, tci)
	}
}

// tag finds the VLAN tag in a control message.
func tag(control []byte) (tpid, tci uint16, ok bool) {
	const head = int(unsafe.Sizeof(unix.Cmsghdr{}))
	const (
		level, kind = head - 8, head - 4 // of Cmsghdr, behind its length
		status      = head + int(unsafe.Offsetof(unix.TpacketAuxdata{}.Status))
		vlan        = head + int(unsafe.Offsetof(unix.TpacketAuxdata{}.Vlan_tci))
		protocol    = head + int(unsafe.Offsetof(unix.TpacketAuxdata{}.Vlan_tpid))
	)
	order := binary.NativeEndian
	if len(control) < protocol+2 || order.Uint32(control[level:]) != unix.SOL_PACKET || order.Uint32(control[kind:]) != unix.PACKET_AUXDATA {
		return 0, 0, false
	}
	s := order.Uint32(control[status:])
	if s&unix.TP_STATUS_VLAN_VALID == 0 {
		return 0, 0, false
	}
	tpid = typeTag
	if s&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tpid = order.Uint16(control[protocol:])
	}
	return tpid, order.Uint16(control[vlan:]), true
}

// transmitBatch is the memory of a sendmmsg call: per frame a virtio-net header and the frame itself.
type transmitBatch struct {
	messages [packetBatch]mmsghdr
	vectors  [packetBatch][2]unix.Iovec
	headers  [packetBatch][virtioBytes]byte
}

// call sends up to len(fs) frames, at most packetBatch, and returns how many went. What holds for the pointers of
// receiveBatch.call holds here; an empty frame points to nothing.
func (b *transmitBatch) call(fd int, fs []*frame.Frame) (int, unix.Errno) {
	for i, f := range fs {
		encodeOffload(&b.headers[i], f)
		v, h := &b.vectors[i], &b.messages[i].hdr
		v[0].Base = &b.headers[i][0]
		v[0].SetLen(virtioBytes)
		v[1].Base = unsafe.SliceData(f.Bytes())
		v[1].SetLen(f.Len())
		h.Iov = &v[0]
		h.SetIovlen(2)
	}
	n, _, err := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages)), uintptr(len(fs)),
		unix.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(n), 0
}

// writeFrame writes one frame and its header to a TAP. The memory is b's and f's as in call.
func (b *transmitBatch) writeFrame(fd int, f *frame.Frame) unix.Errno {
	encodeOffload(&b.headers[0], f)
	v := &b.vectors[0]
	v[0].Base = &b.headers[0][0]
	v[0].SetLen(virtioBytes)
	v[1].Base = unsafe.SliceData(f.Bytes())
	v[1].SetLen(f.Len())
	_, _, err := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(v)), 2)
	return err
}
