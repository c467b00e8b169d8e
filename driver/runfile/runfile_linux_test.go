package runfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRead: only a regular file of the right size is read, and nothing else is waited for.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("full"), []byte("12345678"), 0o600))
	must(os.WriteFile(at("long"), []byte("123456789"), 0o600))
	must(os.WriteFile(at("empty"), nil, 0o600))
	must(os.Symlink(at("full"), at("link")))
	must(unix.Mkfifo(at("fifo"), 0o600))
	l, err := net.Listen("unix", at("socket"))
	must(err)
	defer l.Close()
	for _, row := range []struct{ name, want, says string }{
		{"full", "12345678", ""},
		{"empty", "", ""},
		{"long", "", "more than 8 bytes"},
		{"link", "", "no regular file; remove it"},
		{"fifo", "", "no regular file; remove it"},
		{"socket", "", "no regular file; remove it"},
		{".", "", "no regular file; remove it"},
	} {
		got, err := Read(at(row.name), 8)
		if row.says == "" && (err != nil || string(got) != row.want) || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("%s: %q, %v; want %q, %q", row.name, got, err, row.want, row.says)
		}
	}
	if _, err := Read(at("none"), 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
