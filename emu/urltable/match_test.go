package urltable

import (
	"encoding/binary"
	"testing"

	"splicenic/regs"
)

// FuzzImage walks hostile images: no read outside, no endless walk, whatever the words are.
func FuzzImage(f *testing.F) {
	loop := make([]byte, 64)
	binary.LittleEndian.PutUint32(loop, regs.UrlNodeControlUsedMask|regs.UrlNodeControlChildrenMask|regs.UrlNodeControlOtherwiseAgain<<regs.UrlNodeControlOtherwiseShift) // its own child, and otherwise itself
	binary.LittleEndian.PutUint32(loop[4*regs.UrlNodeNext:], regs.UrlNodeNextValidMask)
	f.Add(loop, uint32(0), "aaaa", "/aaaa")
	f.Add([]byte{}, uint32(1<<31), "", "")
	f.Fuzz(func(t *testing.T, image []byte, root uint32, host, path string) {
		words := make([]uint32, len(image)/4)
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(image[4*i:])
		}
		// The same words stand for both tables: rules with conditions in the image come up at once.
		tables := &Tables{Nodes: words, Rules: words}
		r := &Request{Method: []byte("GET"), Host: []byte(host), Path: []byte(path), Query: []byte(path), ALPN: []byte(host)}
		Match(tables, root, r)
		for k := range len(words) / regs.UrlNodeWords {
			Match(tables, uint32(k), r)
			if s := tables.node(uint32(k)); s != nil {
				left := MaxCandidates
				tables.first(s, r, &left)
				tables.path(s, r.Path)
				tables.wildcard(s, []byte("a.b.c"))
				tables.suffix(s, []byte("photo.jpg"))
				tables.fulfilled(s, r)
			}
		}
	})
}
