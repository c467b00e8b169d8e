package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"splicenic/regs"
	"splicenic/runtime/admin"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/runtime/ipvs"
	"splicenic/runtime/view"
)

// maxFile bounds a file that is read whole.
const maxFile = config.MaxBytes

// ReadFile reads a configuration as requests carry it; "-" is in.
func ReadFile(name string, in io.Reader) (admin.File, error) {
	b, err := readAll(name, in)
	return admin.File{File: name, Text: string(b)}, err
}

func readAll(name string, in io.Reader) ([]byte, error) {
	if name == "-" && in == nil {
		return nil, Usage("standard input cannot be read a second time", "name a file")
	}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, Usage(err.Error(), "check the path")
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, Usage(fmt.Sprintf("%s cannot be read: %v", name, err), "name a file that can be read")
	}
	if len(b) > maxFile {
		return nil, Usage(fmt.Sprintf("%s has more than %d bytes", name, maxFile), "name a smaller file")
	}
	return b, nil
}

// Checked is what a check of a configuration says.
type Checked struct {
	File     string   `json:"file"`
	Services int      `json:"services"`
	Groups   int      `json:"groups"`
	Warnings []string `json:"warnings"`

	Errors config.Problems `json:"errors"` // with any, nothing is counted
}

// Check checks a configuration as far as that goes without a card.
func Check(f admin.File) (Checked, error) {
	c, err := config.Load(f.File, []byte(f.Text))
	r := Checked{File: f.File, Warnings: []string{}, Errors: config.Problems{}}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		r.Errors = problems
	}
	if err != nil {
		return r, err
	}
	r.Services, r.Groups = len(c.Services), len(c.Groups)
	for _, w := range c.Warnings {
		r.Warnings = append(r.Warnings, w.String())
	}
	return r, nil
}

// Imported is a part of a configuration that was made of something else.
type Imported struct {
	YAML string   `json:"yaml"`
	Left []string `json:"left"` // what was left out, and why
}

// Import makes services and groups of objects of the Kubernetes Gateway API.
func Import(f admin.File) (Imported, error) {
	g, err := config.ImportGateway(f.File, []byte(f.Text))
	if err != nil {
		return Imported{}, err
	}
	return imported(g.YAML(), g.Left), nil
}

func imported(yaml string, left config.Problems) Imported {
	r := Imported{YAML: yaml, Left: []string{}}
	for _, p := range left {
		r.Left = append(r.Left, p.String())
	}
	return r
}

// ImportIPVS makes services and groups of dumps of ipvsadm and of keepalived.conf. marks say which packets have a firewall
// mark: "3=198.18.0.80:80".
func ImportIPVS(files []admin.File, marks []string) (Imported, error) {
	known := map[uint32][]ipvs.Listen{}
	for _, s := range marks {
		mark, list, err := ipvs.ParseMark(s)
		if err != nil {
			return Imported{}, Usage(err.Error(), "see splicectl ipvs import --help")
		}
		known[mark] = append(known[mark], list...)
	}
	m := ipvs.NewImporter(known)
	for _, f := range files {
		if err := m.Add(f.File, []byte(f.Text)); err != nil {
			return Imported{}, err
		}
	}
	g := m.Finish()
	return imported(g.YAML(), g.Left), nil
}

// ReadDump reads what `reg dump -o json` printed; without a name it is what a dump says right after a reset.
func ReadDump(name string, in io.Reader) ([]view.Register, error) {
	if name == "" {
		return resetRegisters(), nil
	}
	b, err := readAll(name, in)
	if err != nil {
		return nil, err
	}
	var rs []view.Register
	if err := json.Unmarshal(b, &rs); err != nil {
		return nil, Usage(fmt.Sprintf("%s is no dump of registers: %v", name, err), "make one with: splicectl reg dump -o json > FILE")
	}
	return rs, nil
}

// PageNumber reads the number of a page: n, or the n of n.generation.
func PageNumber(s string) (string, error) {
	n, _, _ := strings.Cut(s, ".")
	v, err := strconv.ParseUint(n, 0, 32)
	if err != nil {
		return "", Usage(fmt.Sprintf("%q is no address n", s), "splicectl conn list shows those in use")
	}
	return strconv.FormatUint(v, 10), nil
}

// ConnectionID returns the handle of a connection that was named by it, by n, or by its client's address and port.
func (c *Client) ConnectionID(ctx context.Context, name string) (string, error) {
	client, err := netip.ParseAddrPort(name)
	if err != nil {
		_, err := PageNumber(name)
		return name, err
	}
	var cs []view.Connection
	if _, err := c.Get(ctx, "connections", url.Values{"limit": {"0"}}, &cs); err != nil {
		return "", err
	}
	for _, x := range cs {
		if a, err := netip.ParseAddrPort(x.Client); err == nil && a == client {
			return x.ID, nil
		}
	}
	return "", &Failure{words: words{What: "find the connection of client " + name, Where: c.Where, Why: "there is none", Do: "splicectl conn list shows them all", Exit: ExitFailed}}
}

// Key is what a CAM is asked for, in words.
type Key struct {
	Client, VIP, Server string
	VLAN                uint16
}

// Query is the key as a request carries it.
func (k *Key) Query(side string) (url.Values, error) {
	client, err := netip.ParseAddrPort(k.Client)
	if err != nil {
		return nil, Usage(fmt.Sprintf("client %q is no ADDRESS:PORT", k.Client), "say --client 198.18.0.10:40000")
	}
	q := url.Values{"address": {client.Addr().String()}, "port": {strconv.Itoa(int(client.Port()))}}
	if k.VLAN != 0 {
		q.Set("vlan", strconv.Itoa(int(k.VLAN)))
	}
	if side == "server" {
		if _, err := netip.ParseAddrPort(k.Server); err != nil {
			return nil, Usage(fmt.Sprintf("server %q is no ADDRESS:PORT", k.Server), "say --server 198.18.1.11:8080")
		}
		q.Set("server", k.Server)
		return q, nil
	}
	vip, err := netip.ParseAddrPort(k.VIP)
	if err != nil {
		return nil, Usage(fmt.Sprintf("VIP %q is no ADDRESS:PORT", k.VIP), "say --vip 198.18.0.80:80")
	}
	q.Set("vip", vip.Addr().String())
	q.Set("destination", strconv.Itoa(int(vip.Port())))
	return q, nil
}

// Version says what this program is.
type Version struct {
	Version        string `json:"version"`
	Go             string `json:"go"`
	Platform       string `json:"platform"`
	ShellDigest    string `json:"shell_digest"`
	DataPathDigest string `json:"datapath_digest"`
}

// ThisVersion is this program's.
func ThisVersion() Version {
	v := Version{Version: "development", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		ShellDigest: fmt.Sprintf("%#08x", regs.ShellDigest), DataPathDigest: fmt.Sprintf("%#08x", regs.DataPathDigest)}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		v.Version = b.Main.Version
	}
	return v
}

// Changes is what a configuration changes, or has changed.
type Changes struct {
	Generation uint32          `json:"generation"`
	Changes    []config.Change `json:"changes"`
	Warnings   []string        `json:"warnings"`

	Capacity *daemon.Capacity `json:"capacity"` // of a runtime's card; nil: there is none
	Refused  string           `json:"refused"`  // why the card cannot take it
}

// NewStore is a value for a register as requests carry it: a number where it reads as one, else a name.
func NewStore(name, value string) (admin.Store, error) {
	if _, ok := regs.LookupRegister(name); !ok {
		return admin.Store{}, Usage("there is no register or field "+name, "splicectl reg list names them all")
	}
	b, err := json.Marshal(value)
	return admin.Store{Name: name, Value: b}, err
}

// resetRegisters is what a dump of the registers says right after a reset, as far as the map fixes it: identity
// registers are the image's.
func resetRegisters() []view.Register {
	var rs []view.Register
	for _, name := range regs.Names() {
		l, _ := regs.LookupRegister(name)
		if l.Register.Class == regs.ClassIdentity || !l.Register.Access.Readable() {
			continue
		}
		for e := range int(l.Register.Count) {
			l.Element = e
			v := uint64(l.Register.Reset)
			rs = append(rs, view.Register{Name: l.Name(), Value: &v, Class: l.Register.Class.String()})
		}
	}
	return rs
}

// ReadPage reads what `page show -o json` printed, and explains it.
func ReadPage(name string, in io.Reader) (p view.Page, x view.Explanation, err error) {
	b, err := readAll(name, in)
	if err != nil {
		return p, x, err
	}
	do := "make one with: splicectl page show N -o json > FILE"
	if err := json.Unmarshal(b, &p); err != nil {
		return p, x, Usage(fmt.Sprintf("%s is no page: %v", name, err), do)
	}
	if x, err = view.ExplainPage(p); err != nil {
		return p, x, Usage(fmt.Sprintf("%s: %v", name, err), do)
	}
	return p, x, nil
}
