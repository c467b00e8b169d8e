package emu_test

import (
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// TestDevice runs the contract's conformance suite on the emulated card.
func TestDevice(t *testing.T) {
	for _, guard := range []bool{true, false} {
		name := "adjacent"
		if guard {
			name = "guarded"
		}
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Harness {
				h := &host{bench: newBench(t, emu.Config{}, port.MemConfig{})}
				h.dev = device.Local(h.card, device.LocalConfig{NoGuard: !guard})
				if err := h.dev.WriteConfig(4, []byte{6, 0}); err != nil { // memory space and bus master
					t.Fatal(err)
				}
				return devicetest.Harness{
					Device:   h.dev,
					Scratch:  devicetest.Register{Region: device.Bar0, Off: uint64(regs.ControlScratch), Mask: regs.ControlScratchValueMask},
					Constant: devicetest.Register{Region: device.Bar0, Off: uint64(regs.DirectoryMagic), Value: regs.Magic},
					Window:   devicetest.Window{Region: device.Bar2, Off: regs.MemHeadOffset, Bytes: 8192},
					Raise:    func(v int) { h.store(regs.ControlInterruptTest, 1<<v) },
					Copy: func(dst, src uint64, n int) error {
						if h.frames == nil {
							h.start()
						}
						return h.copyBytes(dst, src, n)
					},
					Adjacent: !guard,
				}
			})
		})
	}
}
