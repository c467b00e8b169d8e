package emu_test

import (
	"fmt"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// A card with one wire, seen through the device contract, doing a millisecond's work.
func ExampleCard() {
	wire, _ := port.Pair(port.MemConfig{})
	card, err := emu.New(emu.Config{Geometry: emu.Geometry{Pages: 1024}, Client: wire})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer card.Close()
	dev := device.Local(card, device.LocalConfig{})
	defer dev.Close()

	card.Step(time.Millisecond)
	fmt.Printf("%#x\n", dev.Load32(device.Bar0, uint64(regs.DirectoryMagic)))
	fmt.Println(dev.Load32(device.Bar0, uint64(regs.AmuFree)), "pages free at tick", dev.Load32(device.Bar0, uint64(regs.TimerTick)))
	// Output:
	// 0x434c5053
	// 1024 pages free at tick 1
}
