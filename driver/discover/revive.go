package discover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
)

const (
	regBar0      = 0x10
	barAddress   = ^uint32(15)
	rescanWithin = time.Second
)

// Revive makes a card usable again that has left its bus and come back: the kernel has to forget it and look for it again,
// since its BARs are gone, and gives it to vfio-pci. A card that is as it was is left alone. While it does not answer the
// error is a device.ErrDeviceLost: its link may come up yet.
func Revive(ctx context.Context, cfg Config, address string) error {
	at, err := vfio.ParseAddress(address)
	if err != nil {
		return err
	}
	cfg = cfg.filled()
	dir := cfg.device(at)
	config, err := readConfig(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the kernel has seen it go
	case err != nil:
		return fmt.Errorf("look at card %s: %w", at, err)
	case binary.LittleEndian.Uint32(config) == 1<<32-1:
		return fmt.Errorf("look at card %s: its configuration space reads all ones: %w", at, device.ErrDeviceLost)
	case len(config) < regBar0+4 || binary.LittleEndian.Uint32(config[regBar0:])&barAddress != 0:
		return nil
	default:
		if err := cfg.write(filepath.Join(dir, "remove"), "1"); err != nil {
			return fmt.Errorf("have the kernel forget card %s: %w", at, err)
		}
	}
	if err := cfg.write(filepath.Join(cfg.Root, "bus/pci/rescan"), "1"); err != nil {
		return fmt.Errorf("have the kernel look for card %s: %w", at, err)
	}
	for by := time.Now().Add(rescanWithin); ; wait(ctx, 10*time.Millisecond) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		if ctx.Err() != nil || time.Now().After(by) {
			return fmt.Errorf("card %s is not found on the bus: %w", at, device.ErrDeviceLost)
		}
	}
	if _, err := Bind(ctx, cfg, at, BindOptions{}); err != nil {
		return fmt.Errorf("take card %s again: %w", at, err)
	}
	return nil
}
