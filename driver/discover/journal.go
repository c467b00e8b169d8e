package discover

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"splicenic/driver/runfile"
)

// An entry of the journal is what a card had before Bind. There is a file for each card, gone with the machine's run
// directory at the next boot, as the binding is.
type entry struct {
	Address string `json:"address"`
	Driver  string `json:"driver"` // empty: none
}

const maxEntry = 4096 // bytes of an entry: more is none of ours

func (t *transaction) journalPath() string { return filepath.Join(t.cfg.Run, t.address+".json") }

// writeJournal makes the entry last before it returns: file, then name.
func (t *transaction) writeJournal(e entry) error {
	if err := os.MkdirAll(t.cfg.Run, 0o755); err != nil {
		return fmt.Errorf("journal the old driver: %w", err)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal the old driver: %w", err)
	}
	f, err := os.CreateTemp(t.cfg.Run, "."+t.address+"-*")
	if err != nil {
		return fmt.Errorf("journal the old driver: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), t.journalPath())
	}
	if err != nil {
		return fmt.Errorf("journal the old driver: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// readJournal returns what is remembered of the card. Where nothing is, or nothing that can be believed, the error says why.
func (t *transaction) readJournal() (e entry, err error) {
	b, err := runfile.Read(t.journalPath(), maxEntry)
	if err != nil {
		return entry{}, err
	}
	if json.Unmarshal(b, &e) != nil || e.Address != t.address {
		return entry{}, fmt.Errorf("read %s: it is not about this card", t.journalPath())
	}
	return e, nil
}

func (t *transaction) removeJournal() error { return os.Remove(t.journalPath()) }
