package discover

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	configHead  = 64 // bytes of configuration space that every user may read
	configMin   = 16 // bytes that say what a device is
	configBytes = 4096

	resourceIO       = 0x100
	resourceMemory   = 0x200
	resourcePrefetch = 0x2000
)

// readConfig returns as much of configuration space as this user can read: 64 bytes, 256, or 4096. Fewer than the header's
// first 16 are an error.
func readConfig(dir string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, "config"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, configBytes)
	n, err := io.ReadFull(f, b)
	if n >= configMin {
		return b[:n], nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b[:n], err
}

// text returns an attribute, empty where it is not there.
func text(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// hex returns a hexadecimal attribute, all ones where there is none.
func hex(dir, name string) uint64 {
	v, err := strconv.ParseUint(strings.TrimPrefix(text(dir, name), "0x"), 16, 32)
	if err != nil {
		return ^uint64(0)
	}
	return v
}

// link returns the last element of what a link points to, empty where there is none.
func link(dir, name string) string {
	to, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// writeAttribute writes an attribute in one call, as sysfs wants it; the file is never made.
func writeAttribute(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}
