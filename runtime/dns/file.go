package dns

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/miekg/dns"
)

// maxFile bounds a zone file that is read, in bytes.
const maxFile = 4 << 20

// errNoSOA is the error of a zone file without a serial number.
var errNoSOA = errors.New("no SOA record in the zone file")

// readSerial finds the serial number of the zone in a file; ok is false where there is no file.
func readSerial(name string) (serial uint32, ok bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	serial, err = parseSerial(io.LimitReader(f, maxFile))
	if err != nil {
		return 0, false, fmt.Errorf("read %s: %w", name, err)
	}
	return serial, true, nil
}

// parseSerial finds the serial number in the text of a zone, in its first SOA.
func parseSerial(text io.Reader) (uint32, error) {
	p := dns.NewZoneParser(text, ".", "")
	p.SetDefaultTTL(0)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		if soa, is := rr.(*dns.SOA); is {
			return soa.Serial, nil
		}
	}
	if err := p.Err(); err != nil {
		return 0, err
	}
	return 0, errNoSOA
}

// nextSerial is the serial number after another one (RFC 1982, 3): the time in seconds, which people can read and which
// grows over the loss of a file, where that is greater, else one more. Zero is left out, which some take for none.
func nextSerial(last uint32, known bool, now time.Time) uint32 {
	t := uint32(now.Unix())
	if !known || int32(t-last) > 0 {
		return max(t, 1)
	}
	return max(last+1, 1)
}

// writeFile replaces a file at once: whoever reads it finds the old text or the new one, after a loss of power too.
func writeFile(name, text string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = io.WriteString(f, text)
	if err == nil {
		err = f.Chmod(0o644) // it is public, and its readers are other users
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
