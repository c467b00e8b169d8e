//go:build !linux

package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

var errOther = fmt.Errorf("%w: %w", ErrNotPermitted, errors.ErrUnsupported)

// Enter fails with ErrNotPermitted: only Linux has network namespaces.
func Enter() (code int, done bool, err error) { return 0, false, errOther }

func newNamespace() (*os.File, error)                 { return nil, errOther }
func enter(*os.File) (*os.File, error)                { return nil, errOther }
func leave(*os.File) error                            { return errOther }
func groupAttr() *syscall.SysProcAttr                 { return nil }
func killGroup(p *os.Process) error                   { return p.Kill() }
func addVeth(string, string, *os.File) error          { return errOther }
func addAddress(string, netip.Prefix) error           { return errOther }
func addRoute(netip.Prefix, netip.Addr, string) error { return errOther }
func addNeighbour(string, netip.Addr, [6]byte) error  { return errOther }
func setMTU(string, int) error                        { return errOther }
func setMAC(string, [6]byte) error                    { return errOther }
func addBridge(string) error                          { return errOther }
func setMaster(string, string) error                  { return errOther }
func setUp(string, bool) error                        { return errOther }
func settle(string) error                             { return errOther }
func setOffload(string, Offload) error                { return errOther }
