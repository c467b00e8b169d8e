// Package regfile is BAR0 of the emulated card: one flat array of words that is the state of the card's registers.
//
// Blocks read and write it raw, through Get and Set; no register is computed from anything else, so that what a host
// reads is all there is. HostLoad and HostStore apply the access kinds of the map. A File belongs to one goroutine at
// a time and starts none.
package regfile

import "splicenic/regs"

const words = regs.Bar0Bytes / 4

// File holds every register. New is the only way to make one.
type File struct {
	word [words]uint32
	rule *[words]rule // shared by all files, never written
}

// New returns a file at its reset values, with the directory filled and the geometry of the default image.
func New() *File {
	f := &File{rule: rules()}
	f.Reset()
	return f
}

// Reset gives every register the value it has after power-on.
func (f *File) Reset() {
	clear(f.word[:])
	for i := range regs.Blocks {
		f.resetBlock(&regs.Blocks[i])
	}
	f.directory()
	f.image()
}

// ResetDataPath gives every register outside the shell its reset value; the facts of the image stay as they are.
func (f *File) ResetDataPath() {
	for i := range regs.Blocks {
		if b := &regs.Blocks[i]; !b.Shell && b.Offset != uint32(regs.GeometryBase) {
			f.resetBlock(b)
		}
	}
}

// ResetHostInterface gives the host interface and its rings their reset values.
func (f *File) ResetHostInterface() {
	for i := range regs.Blocks {
		if b := &regs.Blocks[i]; b.Offset == uint32(regs.HostifBase) || b.Offset == uint32(regs.RingBase) {
			f.resetBlock(b)
		}
	}
}

func (f *File) resetBlock(b *regs.BlockInfo) {
	for inst := range b.Instances {
		for i := range b.Registers {
			r := &b.Registers[i]
			for e := range r.Count {
				at := (b.Offset + uint32(inst)*b.Stride + r.Offset + e*r.Stride) / 4
				f.word[at] = r.Reset
				if r.Wide {
					f.word[at+1] = 0
				}
			}
		}
	}
}

// Get returns a register as it is, secrets included.
func (f *File) Get(r regs.Reg) uint32 { return f.word[r/4%words] }

// Set stores a register as it is.
func (f *File) Set(r regs.Reg, v uint32) { f.word[r/4%words] = v }

// Get64 returns a pair of words, the low one at r.
func (f *File) Get64(r regs.Reg) uint64 {
	return uint64(f.word[r/4%words]) | uint64(f.word[(r/4+1)%words])<<32
}

// Set64 stores a pair of words.
func (f *File) Set64(r regs.Reg, v uint64) {
	f.word[r/4%words], f.word[(r/4+1)%words] = uint32(v), uint32(v>>32)
}

// Add64 adds to a pair of words.
func (f *File) Add64(r regs.Reg, n uint64) { f.Set64(r, f.Get64(r)+n) }
