package vm

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readCPIO reads an archive as the kernel does: by the names of the header's fields.
func readCPIO(b []byte) (files []File, err error) {
	names := []string{"ino", "mode", "uid", "gid", "nlink", "mtime", "filesize", "devmajor", "devminor", "rdevmajor", "rdevminor", "namesize", "check"}
	for at := 0; ; {
		if at%4 != 0 || len(b)-at < 110 || string(b[at:at+6]) != "070701" {
			return nil, fmt.Errorf("no header at %d", at)
		}
		field := map[string]int{}
		for i, n := range names {
			v, err := strconv.ParseUint(string(b[at+6+8*i:][:8]), 16, 32)
			if err != nil {
				return nil, err
			}
			field[n] = int(v)
		}
		name := b[at+110:][:field["namesize"]]
		at = (at + 110 + len(name) + 3) &^ 3
		data := b[at:][:field["filesize"]]
		at = (at + len(data) + 3) &^ 3
		if name = bytes.TrimSuffix(name, []byte{0}); string(name) == "TRAILER!!!" {
			return files, nil
		}
		files = append(files, File{string(name), uint32(field["mode"]), uint32(field["rdevmajor"]<<8 | field["rdevminor"]), bytes.Clone(data)})
	}
}

// TestWriteCPIO reads an initramfs back.
func TestWriteCPIO(t *testing.T) {
	files := []File{
		{"dev", modeDir | 0o755, 0, []byte{}},
		{"dev/console", modeChar | 0o600, 5<<8 | 1, []byte{}},
		{"init", modeFile | 0o755, 0, []byte("12345")},
		{"abc", modeFile | 0o644, 0, []byte("1234")},
		{"empty", modeFile | 0o644, 0, []byte{}},
	}
	var b bytes.Buffer
	if err := writeCPIO(&b, files); err != nil {
		t.Fatal(err)
	}
	if b.Len()%cpioAlign != 0 {
		t.Errorf("%d bytes", b.Len())
	}
	got, err := readCPIO(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files, got); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
}
