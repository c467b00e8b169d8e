package flash

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// File is a Store in a file: the bytes as the flash has them, blank where the file ends early. What stands beside the
// cells is text in a file of the same name with ".board" behind it.
type File struct {
	f           *os.File
	board       *os.File
	end         uint32 // bytes of f
	sectorBytes uint32
	kept        Board
	blank       []byte
}

// OpenFile opens or makes a file for a part. Only one flash at a time has it. fresh says that there was nothing in it.
func OpenFile(path string, p Part) (s *File, fresh bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("open flash file: %w", err)
	}
	s = &File{f: f, sectorBytes: p.SectorBytes, blank: make([]byte, p.SectorBytes)}
	fill(s.blank)
	if err := s.open(path, p); err != nil {
		return nil, false, errors.Join(fmt.Errorf("open flash file %s: %w", path, err), s.Close())
	}
	return s, s.end == 0, nil
}

func (s *File) open(path string, p Part) error {
	st, err := s.f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return errors.New("it is no regular file")
	}
	if st.Size() > int64(p.Bytes) {
		return fmt.Errorf("it has %d bytes, the flash has %d", st.Size(), p.Bytes)
	}
	if err := lock(s.f); err != nil {
		return err
	}
	s.end = uint32(st.Size())
	if s.board, err = os.OpenFile(path+".board", os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	return s.readBoard()
}

// boardText is what the file beside the cells says. Its length never changes, so that one write replaces it.
const boardText = "next %02d\nprotected %1d\n"

func (s *File) readBoard() error {
	text, err := io.ReadAll(io.LimitReader(s.board, 64))
	if err != nil || len(text) == 0 {
		return err
	}
	var next, protected uint32
	if _, err := fmt.Sscanf(string(text), boardText, &next, &protected); err != nil || next > 15 || protected > 1 {
		return fmt.Errorf("%s does not say which slot is next and whether the flash is protected; remove it", s.board.Name())
	}
	s.kept = Board{next, protected == 1}
	return nil
}

// ReadAt reads; what lies behind the file's end is blank.
func (s *File) ReadAt(p []byte, off uint32) error {
	n := 0
	if off < s.end {
		n = min(len(p), int(s.end-off))
		if _, err := s.f.ReadAt(p[:n], int64(off)); err != nil {
			return fmt.Errorf("read flash file: %w", err)
		}
	}
	fill(p[n:])
	return nil
}

// WriteAt writes. What a longer file has before it is blank.
func (s *File) WriteAt(p []byte, off uint32) error {
	for s.end < off {
		if err := s.write(s.blank[:min(len(s.blank), int(off-s.end))], s.end); err != nil {
			return err
		}
	}
	return s.write(p, off)
}

func (s *File) write(p []byte, off uint32) error {
	if _, err := s.f.WriteAt(p, int64(off)); err != nil {
		return fmt.Errorf("write flash file: %w", err)
	}
	s.end = max(s.end, off+uint32(len(p)))
	return nil
}

// Blank erases a sector.
func (s *File) Blank(sector uint32) error {
	if sector >= s.end {
		return nil
	}
	return s.write(s.blank, sector)
}

// Board returns what is kept beside the cells.
func (s *File) Board() (Board, error) { return s.kept, nil }

// SetBoard keeps it.
func (s *File) SetBoard(b Board) error {
	if b == s.kept {
		return nil
	}
	protected := 0
	if b.Protected {
		protected = 1
	}
	if _, err := s.board.WriteAt(fmt.Appendf(nil, boardText, b.Next&15, protected), 0); err != nil {
		return fmt.Errorf("write %s: %w", s.board.Name(), err)
	}
	s.kept = b
	return nil
}

// Close lets the files go.
func (s *File) Close() error {
	err := s.f.Close()
	if s.board != nil {
		err = errors.Join(err, s.board.Close())
	}
	return err
}
