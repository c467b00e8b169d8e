package vfio

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// A fakeCap is a capability of an answer.
type fakeCap struct {
	id   uint16
	body []byte
}

// answer fills b as the kernel does: all where there is room, else the structure and how much room is wanted. capAt is where
// the structure tells the first capability.
func answer(b, info []byte, capAt int, caps []fakeCap) error {
	if len(b) < len(info) {
		return unix.EINVAL
	}
	whole := slices.Clone(info)
	if len(caps) > 0 {
		binary.NativeEndian.PutUint32(whole[capAt:], uint32(len(info)))
	}
	for i, c := range caps {
		next := uint32(0)
		body := append(slices.Clone(c.body), make([]byte, (8-len(c.body)%8)%8)...)
		if i+1 < len(caps) {
			next = uint32(len(whole) + 8 + len(body))
		}
		whole = append(whole, encodeInfo(capHeader{ID: c.id, Version: 1, Next: next})...)
		whole = append(whole, body...)
	}
	binary.NativeEndian.PutUint32(whole, uint32(len(whole)))
	if len(b) < len(whole) {
		copy(b, info)
		binary.NativeEndian.PutUint32(b, uint32(len(whole)))
		return nil
	}
	copy(b, whole)
	return nil
}

func rangesBody(rs []device.IOVARange) []byte {
	b := encodeInfo([2]uint32{uint32(len(rs)), 0})
	for _, r := range rs {
		b = append(b, encodeInfo(iovaRange{r.First, r.Last})...)
	}
	return b
}

func areasBody(as ...sparseArea) []byte {
	b := encodeInfo([2]uint32{uint32(len(as)), 0})
	for _, a := range as {
		b = append(b, encodeInfo(a)...)
	}
	return b
}
