package vfio

import "encoding/binary"

// encodeInfo returns a structure as the kernel writes it.
func encodeInfo(v any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}
