package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"splicenic/bitstream/xilinx"
	"splicenic/regs"
)

// The part, as streams and headers name it.
const (
	Part   = "7a200tfbg484"
	IDCode = 0x03636093
)

// MaxBytes bounds a stream.
const MaxBytes = 64 << 20

// Options say what a stream looks like beside its parameters.
type Options struct {
	Bytes int // of the stream, a multiple of 4: it is filled with empty frames up to there; zero: as few as it takes
}

// Encode returns the stream of an image.
func Encode(p Params, o Options) ([]byte, error) {
	data, err := p.frames()
	if err != nil {
		return nil, fmt.Errorf("encode image: %w", err)
	}
	frames := (len(data) + 4*xilinx.FrameWords - 1) / (4 * xilinx.FrameWords)
	b := stream(&p, data, frames)
	if o.Bytes == 0 {
		return b, nil
	}
	if o.Bytes%4 != 0 || o.Bytes < len(b) || o.Bytes > MaxBytes {
		return nil, fmt.Errorf("encode image: %d bytes asked for; it has %d at least and %d at most, in words of 4", o.Bytes, len(b), MaxBytes)
	}
	b = stream(&p, data, frames+(o.Bytes-len(b))/(4*xilinx.FrameWords))
	for len(b) < o.Bytes {
		b = binary.BigEndian.AppendUint32(b, noOperation)
	}
	return b, nil
}

const noOperation = 0x20000000

func stream(p *Params, data []byte, frames int) []byte {
	words := make([]uint32, frames*xilinx.FrameWords)
	padded := append(data[:len(data):len(data)], 0, 0, 0)
	for i := range (len(data) + 3) / 4 {
		words[i] = binary.BigEndian.Uint32(padded[4*i:])
	}
	e := xilinx.Encoder{IDCode: IDCode, UserAccess: p.UserCode, Runs: []xilinx.Run{{Words: words}}}
	return e.Append(make([]byte, 0, 4*len(words)+2048))
}

// EncodeBit returns the image as a .bit file. date is 2006/01/02, clock 15:04:05.
func EncodeBit(p Params, o Options, date, clock string) ([]byte, error) {
	b, err := Encode(p, o)
	if err != nil {
		return nil, err
	}
	design := fmt.Sprintf("%s;UserID=0X%08X;Version=%s", strings.ReplaceAll(p.Name, ";", "_"), p.UserCode, p.Version)
	head, err := xilinx.BitHeader{Design: design, Part: Part, Date: date, Time: clock}.Append(nil, len(b))
	return append(head, b...), err
}

// syncBytes is how far into a slot the configuration logic looks for a sync word.
const syncBytes = 64 << 10

// Load reads a slot from its start as the configuration logic of a part does at power-on, to the end of the stream and
// not beyond, and returns what the stream makes of the card. failed is the code of configuration.boot_status.error; err
// says it in words.
func Load(r io.Reader, idcode uint32) (p Params, failed uint32, err error) {
	l := xilinx.NewLogic(idcode)
	var frames []byte
	l.Data = func(far uint32, n int, w uint32) {
		switch at := 4 * n; {
		case far != 0 || at >= len(magic)+4+maxText:
		case at == len(frames):
			frames = binary.BigEndian.AppendUint32(frames, w)
		case at < len(frames):
			binary.BigEndian.PutUint32(frames[at:], w)
		}
	}
	if failed, err := feed(r, l); err != nil {
		return Params{}, failed, err
	}
	if p, err = Decode(frames); err == nil && p.UserCode != l.UserAccess {
		err = fmt.Errorf("%w: its user code is %#x, the stream's %#x", ErrForeign, p.UserCode, l.UserAccess)
	}
	if err != nil {
		return Params{}, regs.ConfigurationBootStatusErrorCrc, err
	}
	return p, regs.ConfigurationBootStatusErrorNone, nil
}

// feed gives the logic words until the design is up or the stream is refused.
func feed(r io.Reader, l *xilinx.Logic) (failed uint32, err error) {
	var buf [4096]byte
	for at := 0; ; at += len(buf) {
		n, err := io.ReadFull(r, buf[:])
		for i := 0; i+4 <= n; i += 4 {
			l.Write(binary.BigEndian.Uint32(buf[i:]))
			if l.Up() {
				return regs.ConfigurationBootStatusErrorNone, nil
			}
			if why := l.Refused(); why != xilinx.RefusedNothing {
				failed = regs.ConfigurationBootStatusErrorCrc
				if why == xilinx.RefusedIDCode {
					failed = regs.ConfigurationBootStatusErrorIdcode
				}
				return failed, fmt.Errorf("configuration logic refuses the stream at byte %d: %s", at+i, why)
			}
		}
		if !l.Synced() && (err != nil || at+len(buf) >= syncBytes) {
			return regs.ConfigurationBootStatusErrorNoSync, errors.New("no sync word")
		}
		if err != nil {
			return regs.ConfigurationBootStatusErrorCrc, fmt.Errorf("stream ends before the design is started: %w", err)
		}
	}
}
