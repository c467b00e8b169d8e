package urltable

import (
	"encoding/binary"
	"math/bits"
)

// hash is what a block of nodes is ordered by, as the format url_node says.
func hash(s []byte) uint64 {
	const seed, factor = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(s)) ^ seed
	for len(s) >= 8 {
		hi, lo := bits.Mul64(h^binary.LittleEndian.Uint64(s), factor)
		h = hi ^ lo
		s = s[8:]
	}
	if len(s) > 0 {
		hi, lo := bits.Mul64(h^word(s), factor)
		h = hi ^ lo
	}
	return h
}

// word returns up to seven bytes as a number.
func word(s []byte) uint64 {
	switch n := len(s); {
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(s)) | uint64(binary.LittleEndian.Uint32(s[n-4:]))<<(8*(n-4))
	case n > 0:
		return uint64(s[0]) | uint64(s[n/2])<<(8*(n/2)) | uint64(s[n-1])<<(8*(n-1))
	}
	return 0
}

// equal compares a text as the image holds it with s.
func equal(text []uint32, s []byte) bool {
	for len(s) >= 8 && len(text) >= 2 {
		if uint64(text[0])|uint64(text[1])<<32 != binary.LittleEndian.Uint64(s) {
			return false
		}
		text, s = text[2:], s[8:]
	}
	if len(s) >= 4 && len(text) > 0 {
		if text[0] != binary.LittleEndian.Uint32(s) {
			return false
		}
		text, s = text[1:], s[4:]
	}
	return len(s) == 0 || len(s) < 4 && len(text) > 0 && uint64(text[0]) == word(s)
}

// lower copies s to dst, which is as long, with its letters in lower case, eight bytes at a time. In each byte the sums
// have the upper bit where its lower seven are at least "A", and above "Z".
func lower(dst, s []byte) {
	for len(s) >= 8 {
		x := binary.LittleEndian.Uint64(s)
		low := x &^ highs
		letters := (low + (0x80-'A')*ones) &^ (low + (0x7f-'Z')*ones) &^ x & highs
		binary.LittleEndian.PutUint64(dst, x|letters>>2)
		dst, s = dst[8:], s[8:]
	}
	for i, b := range s {
		dst[i] = fold[b]
	}
}
