package vfiouser

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// stateName is the file in Options.Dir that says what memory there is, for a successor:
//
//	{"version": 1, "memory": [{"name": "ring-0", "n": 0, "dir": "/run/card/dma", "iova": 4096, "bytes": 65536, "page_bytes": 4096}]}
//
// It is replaced as a whole, so a reader sees one state or another.
const (
	stateName    = "dma.json"
	stateVersion = 1
	maxState     = 1 << 20
	maxEntries   = 4096
	filePrefix   = "dma-"
)

// state is the contents of the file.
type state struct {
	Version int     `json:"version"`
	Memory  []entry `json:"memory"`
}

// entry is one allocation.
type entry struct {
	Name      string `json:"name"`
	N         int    `json:"n"` // tells allocations of one name apart
	Dir       string `json:"dir"`
	IOVA      uint64 `json:"iova"`
	Bytes     uint64 `json:"bytes"`
	PageBytes uint64 `json:"page_bytes"`
}

// fileName is how the file of an allocation is called.
func (e *entry) fileName() string {
	if e.N == 0 {
		return filePrefix + e.Name
	}
	return fmt.Sprintf("%s%s.%d", filePrefix, e.Name, e.N)
}

// cleanName makes a name that can be part of a file's.
func cleanName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
	if clean == "" {
		return "memory"
	}
	return clean[:min(len(clean), 64)]
}

// decodeState reads what a predecessor wrote. It believes nothing that would lead out of dirs, and its errors quote nothing:
// the text may be somebody else's.
func decodeState(b []byte, dirs []string) ([]entry, error) {
	if len(b) > maxState {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", stateName, len(b), maxState)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s is not what this program writes", stateName)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%s has version %d, not %d", stateName, s.Version, stateVersion)
	}
	if len(s.Memory) > maxEntries {
		return nil, fmt.Errorf("%s has %d entries, more than %d", stateName, len(s.Memory), maxEntries)
	}
	names := map[string]bool{}
	for i := range s.Memory {
		if err := s.Memory[i].check(dirs); err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", stateName, i, err)
		}
		name := s.Memory[i].fileName()
		if names[name] {
			return nil, fmt.Errorf("%s: entry %d: %s appears twice", stateName, i, name)
		}
		names[name] = true
	}
	return s.Memory, nil
}

func (e *entry) check(dirs []string) error {
	known := false
	for _, d := range dirs {
		known = known || d == e.Dir
	}
	switch {
	case e.Name != cleanName(e.Name):
		return errors.New("its name is none of ours")
	case e.N < 0 || e.N > maxEntries:
		return fmt.Errorf("number %d", e.N)
	case !known:
		return errors.New("its directory is none of ours")
	case e.PageBytes < 4096 || e.PageBytes&(e.PageBytes-1) != 0 || e.PageBytes > maxAlloc:
		return fmt.Errorf("pages of %d bytes", e.PageBytes)
	case e.Bytes == 0 || e.Bytes%e.PageBytes != 0 || e.Bytes > maxAlloc || e.IOVA == 0 || e.IOVA%4096 != 0 || e.Bytes-1 > ^e.IOVA:
		return fmt.Errorf("%d bytes at iova %#x", e.Bytes, e.IOVA)
	}
	return nil
}

func encodeState(es []entry) ([]byte, error) {
	return json.MarshalIndent(state{stateVersion, es}, "", "\t")
}

// maxAlloc bounds one allocation; the card's largest memory is a fraction of it.
const maxAlloc = 4 << 30
