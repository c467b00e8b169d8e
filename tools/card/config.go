package card

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"splicenic/driver/runfile"
	"splicenic/emu"
	"splicenic/tools/open"
)

// Config says which card to serve, and where.
type Config struct {
	Card           string // emu or vfio:ADDRESS
	Socket         string
	Client, Server string // the emulated card's wires, as in a configuration file
	Seed           uint64
	Flash          string // file of the emulated card's flash; empty: it has a new one
	VFIO           open.VFIOOptions
	Machine        open.Machine

	Geometry emu.Geometry // of the emulated card; no flag
	Log      *slog.Logger // told of clients; nil: nobody is
	Ready    func()       // called when clients may come; nil: not at all
	ready    int          // descriptor that Start waits on; 0: none
}

// A FlagSet is what the packages for flags have in common.
type FlagSet interface {
	StringVar(p *string, name, value, usage string)
	Uint64Var(p *uint64, name string, value uint64, usage string)
	BoolVar(p *bool, name string, value bool, usage string)
	IntVar(p *int, name string, value int, usage string)
}

// ReadyFlag is between Start and what it starts.
const ReadyFlag = "ready-fd"

// Flags declares the flags of `card serve`, which Args speaks.
func (c *Config) Flags(f FlagSet) {
	f.StringVar(&c.Card, "card", "", "emu or vfio:ADDRESS")
	f.StringVar(&c.Socket, "socket", "", "where clients find the card")
	f.StringVar(&c.Client, "client", "", "the emulated card's wire on the client side: eth1, tap:NAME, pcap:IN,OUT or mem")
	f.StringVar(&c.Server, "server", "", "the one on the server side; empty beside --client: a one-armed card")
	f.Uint64Var(&c.Seed, "seed", 0, "of the emulated card's keys")
	f.StringVar(&c.Flash, "flash", "", "file that keeps the emulated card's flash, with its images; made where it is not there")
	f.IntVar(&c.ready, ReadyFlag, 0, "descriptor that is told when the card is served")
}

// Args is the command line of a card process with this Config, as far as flags carry it.
func (c *Config) Args() []string {
	args := []string{"--card", c.Card, "--socket", c.Socket}
	for _, f := range []struct{ name, value string }{
		{"client", c.Client}, {"server", c.Server}, {"flash", c.Flash}, {"transport", c.VFIO.Transport}, {"vf-token", c.VFIO.VFToken}, {"machine", c.Machine.Root},
	} {
		if f.value != "" && f.value != open.Auto {
			args = append(args, "--"+f.name, f.value)
		}
	}
	if c.Seed != 0 {
		args = append(args, "--seed", strconv.FormatUint(c.Seed, 10))
	}
	if c.VFIO.NoIOMMU {
		args = append(args, "--noiommu")
	}
	return args
}

// Info is what a card process says about itself, in a file beside its socket.
type Info struct {
	PID    int    `json:"pid"`
	Card   string `json:"card"`
	Client string `json:"client"`
	Server string `json:"server"`
	Seed   uint64 `json:"seed"`
	Flash  string `json:"flash,omitempty"`
}

// Info is what a process with this Config says.
func (c *Config) info(pid int) Info {
	return Info{PID: pid, Card: c.Card, Client: c.Client, Server: c.Server, Seed: c.Seed, Flash: c.Flash}
}

// Differs says in words how the card that is served is another one than c asks for; empty: it is the same.
func (i *Info) Differs(c *Config) string {
	var words []string
	differ := func(what, has, want string) {
		if has != want {
			words = append(words, fmt.Sprintf("%s is %s, not %s", what, named(has), named(want)))
		}
	}
	differ("its card", i.Card, c.Card)
	if len(words) == 0 && c.Card == open.Emulator {
		differ("its client wire", i.Client, c.Client)
		differ("its server wire", i.Server, c.Server)
		differ("its flash", i.Flash, c.Flash)
		differ("its seed", strconv.FormatUint(i.Seed, 10), strconv.FormatUint(c.Seed, 10))
	}
	return strings.Join(words, ", ")
}

func named(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// infoPath is the file beside a socket.
func infoPath(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".json" }

// maxInfo bounds what is read of it.
const maxInfo = 1 << 16

// write replaces the file as a whole.
func (i *Info) write(socket string) error {
	b, err := json.MarshalIndent(i, "", "\t")
	if err != nil {
		return fmt.Errorf("encode the card process's file: %w", err)
	}
	path := infoPath(socket)
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readInfo reads it; it may be about a process that is long gone.
func readInfo(socket string) (*Info, error) {
	path := infoPath(socket)
	b, err := runfile.Read(path, maxInfo)
	if err != nil {
		return nil, err
	}
	var i Info
	if json.Unmarshal(b, &i) != nil { // whose words would quote it
		return nil, fmt.Errorf("read %s: it is no card process's; remove it", path)
	}
	return &i, nil
}
