package runfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Read returns the contents of a file of at most so many bytes.
func Read(path string, atMost int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link, a socket
		return nil, fmt.Errorf("read %s: it is no regular file; remove it", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is no regular file; remove it", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, atMost+1))
	if err == nil && int64(len(b)) > atMost {
		err = fmt.Errorf("read %s: it has more than %d bytes, so it is none of ours; remove it", path, atMost)
	}
	return b, err
}
