package vfio_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/vfio"
)

// A device is opened, used and closed by one process; every error says what to do.
func ExampleOpen() {
	d, err := vfio.Open("ffff:ff:1f.7", vfio.Options{}) // where this machine has none
	if err != nil {
		var op *device.OpError
		fmt.Println(errors.As(err, &op), op.Dev)
		return
	}
	defer d.Close()

	ring, err := d.AllocDMA("ring", 4096)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ring.Close()
	if err := d.EnableVectors(1); err != nil {
		fmt.Println(err)
		return
	}
	d.Store32(device.Bar0, 0x100, uint32(ring.IOVA))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for {
		select {
		case <-d.RemovalRequested(): // somebody unbinds the card: let it go
			return
		default:
		}
		if _, err := d.Wait(ctx, 0); err != nil {
			return
		}
	}
	// Output: true vfio:ffff:ff:1f.7
}
