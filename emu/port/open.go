package port

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotSupported says that this operating system has no such port.
var ErrNotSupported = fmt.Errorf("kind of port not supported on this system: %w", errors.ErrUnsupported)

// ErrGone says that the interface a port was opened on does not exist any more. One that has its name since is another,
// which nobody gave to the card.
var ErrGone = errors.New("the interface is gone; a port on one made again has to be opened anew")

// ErrBusy says that another card holds the interface.
var ErrBusy = errors.New("another card holds the interface")

// Open opens the port that spec describes: the name of a kernel interface, "tap:NAME", or "pcap:IN,OUT", where either
// file may be missing. An interface or TAP is opened in the network namespace of the calling thread and stays there.
// Ports in memory come in pairs, see Pair.
func Open(spec string) (Port, error) {
	p, err := openSpec(spec)
	if err != nil {
		return nil, fmt.Errorf("open port %q: %w", spec, err)
	}
	return p, nil
}

// openSpec keeps nil pointers of the concrete types out of the interface.
func openSpec(spec string) (Port, error) {
	kind, rest, found := strings.Cut(spec, ":")
	switch {
	case found && kind == "pcap":
		in, out, _ := strings.Cut(rest, ",")
		if in == "" && out == "" || strings.Contains(out, ",") {
			return nil, errors.New("want pcap:IN,OUT, two file names of which one may be empty")
		}
		p, err := OpenPcap(in, out)
		if err != nil {
			return nil, err
		}
		return p, nil
	case found && kind == "tap":
		return openTap(rest)
	case found:
		return nil, fmt.Errorf("unknown kind %q; known are an interface's name, tap:NAME, pcap:IN,OUT and mem", kind)
	case spec == "mem":
		return nil, errors.New("a port in memory needs somebody at its other end")
	case spec == "":
		return nil, errors.New("no name")
	}
	return openInterface(spec)
}
