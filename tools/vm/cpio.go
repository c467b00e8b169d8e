package vm

import (
	"bufio"
	"fmt"
	"io"
)

// A File is an entry of an initramfs.
type File struct {
	Name string // path without a leading slash
	Mode uint32 // type and permissions, as stat has them
	Dev  uint32 // major << 8 | minor of a device node
	Data []byte
}

// Types of a File.
const (
	modeDir    = 0o040000
	modeChar   = 0o020000
	modeFile   = 0o100000
	cpioMagic  = "070701" // newc, no checksum
	cpioAlign  = 4
	cpioEnd    = "TRAILER!!!"
	cpioMaxLen = 1<<32 - 1
)

// writeCPIO writes an initramfs: each entry a header of 13 numbers of 8 hexadecimal digits, the name with its NUL and the
// data, both filled up to a multiple of 4. A folder comes before what lies in it.
func writeCPIO(w io.Writer, files []File) error {
	b := bufio.NewWriter(w)
	for i, f := range append(files[:len(files):len(files)], File{Name: cpioEnd}) {
		if uint64(len(f.Data)) > cpioMaxLen {
			return fmt.Errorf("write initramfs: %s has %d bytes", f.Name, len(f.Data))
		}
		links := 1
		if f.Mode&modeDir != 0 {
			links = 2
		}
		n, _ := fmt.Fprintf(b, "%s%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", cpioMagic,
			i+1, f.Mode, 0, 0, links, 0, len(f.Data), 0, 0, f.Dev>>8, f.Dev&0xff, len(f.Name)+1, 0)
		m, _ := b.WriteString(f.Name + "\x00")
		pad(b, n+m)
		b.Write(f.Data)
		pad(b, len(f.Data))
	}
	return b.Flush() // a bufio.Writer keeps its first error
}

func pad(b *bufio.Writer, n int) {
	for ; n%cpioAlign != 0; n++ {
		b.WriteByte(0)
	}
}
