package regfile

import (
	"sync"

	"splicenic/regs"
)

// directory fills the directory from the generated tables.
func (f *File) directory() {
	f.Set(regs.DirectoryEntries, uint32(len(regs.Blocks)))
	f.Set(regs.DirectoryShellDigest, regs.ShellDigest)
	f.Set(regs.DirectoryDataPathDigest, regs.DataPathDigest)
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		kind := regs.SetDirectoryEntryTypeVersion(regs.SetDirectoryEntryTypeType(0, uint32(b.Type)), uint32(b.Version))
		f.Set(regs.DirectoryEntryType.At(i, regs.DirectoryEntryTypeStride), kind)
		f.Set(regs.DirectoryEntryOffset.At(i, regs.DirectoryEntryOffsetStride), b.Offset)
		f.Set(regs.DirectoryEntryStride.At(i, regs.DirectoryEntryStrideStride), b.Stride)
		f.Set(regs.DirectoryEntryInstances.At(i, regs.DirectoryEntryInstancesStride), uint32(len(b.Instances)))
		f.Set(regs.DirectoryEntryDigest.At(i, regs.DirectoryEntryDigestStride), b.Digest)
	}
}

// facts are what this image says about itself beside its memories, whose sizes ssram.Geometry stores.
var facts = []struct {
	reg   regs.Reg
	value uint32
}{
	{regs.IdentityImageVersion, 1 << regs.IdentityImageVersionMajorShift},
	{regs.GeometryPageBytes, 256},
	{regs.GeometryHeadBytes, 8192},
	{regs.GeometryCamWordBits, 144},
	{regs.GeometryPipelines, 1},
	{regs.GeometryPorts, 2},
	{regs.GeometryVectors, 3},
	{regs.GeometryMaxCamMoves, 8},
	{regs.GeometryMaxOptionBytes, 40},
	{regs.GeometryMaxSackBlocks, 4},
	{regs.GeometryMaxExtensionHeaders, 8},
	{regs.GeometryMaxHeadGaps, 0},
	{regs.GeometryMaxPathSegments, 32},
	{regs.GeometryMaxCandidates, 16},
	{regs.GeometryMaxConditions, 8},
	{regs.GeometryMaxCompare, 64},
	{regs.GeometryMaxHeldSegments, 10},
	{regs.GeometryMaxAnswers, 7},
	{regs.GeometryMaxServersTried, 3},
	{regs.GeometryClock, 133_000_000},
}

func (f *File) image() {
	for _, x := range facts {
		f.Set(x.reg, x.value)
	}
	for i := range regs.Memories {
		if m := &regs.Memories[i]; m.Geometry != 0 {
			f.Set(m.Geometry, m.Count)
		}
	}
	f.Set(regs.GeometrySlots, slots)
}

// A group has two slot areas; the memory holds them for every group of the default image.
const slots = regs.MemSlotCount / (2 * regs.MemGroupCount)

// ShellOnly leaves nothing but the shell: every other register reads 0, and the directory has no entry for it.
func (f *File) ShellOnly() {
	kept := 0
	for i := range regs.Blocks {
		at := regs.Reg(i) * regs.DirectoryEntryTypeStride
		if regs.Blocks[i].Shell {
			for r := regs.Reg(0); r < regs.DirectoryEntryTypeStride; r += 4 {
				f.Set(regs.DirectoryEntryType+regs.Reg(kept)*regs.DirectoryEntryTypeStride+r, f.Get(regs.DirectoryEntryType+at+r))
			}
			kept++
		}
	}
	clear(f.word[uint32(regs.DirectoryEntryType+regs.Reg(kept)*regs.DirectoryEntryTypeStride)/4:][:(len(regs.Blocks)-kept)*int(regs.DirectoryEntryTypeStride)/4])
	f.Set(regs.DirectoryEntries, uint32(kept))
	for i := range regs.Blocks {
		if b := &regs.Blocks[i]; !b.Shell {
			clear(f.word[b.Offset/4:][:b.Stride/4*uint32(len(b.Instances))])
		}
	}
}

// Shell says whether a BAR0 offset lies in the shell.
func Shell(off uint32) bool { return off < shellEnd() }

// shellEnd is where the first block of the data path begins: the shell lies before all of them.
var shellEnd = sync.OnceValue(func() uint32 {
	end := uint32(regs.Bar0Bytes)
	for i := range regs.Blocks {
		if b := &regs.Blocks[i]; !b.Shell {
			end = min(end, b.Offset)
		}
	}
	return end
})
