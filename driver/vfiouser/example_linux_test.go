package vfiouser_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
)

// A card process serves a function; a runtime uses it, goes, and its successor finds memory and card as they were.
func Example() {
	dir, err := os.MkdirTemp("/dev/shm", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "card.sock")
	srv, err := vfiouser.Listen(socket, devicetest.NewCard(), vfiouser.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error)
	go func() { served <- srv.Serve(ctx) }()

	for _, who := range []string{"first", "second"} {
		o := vfiouser.Options{Name: "card", Dir: filepath.Join(dir, "dma"), Reattach: true}
		c, err := vfiouser.Dial(ctx, socket, o)
		if err != nil {
			fmt.Println(err)
			return
		}
		ring, err := c.AllocDMA("ring", 4096)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(who, "kept:", c.Kept(ring), "ring:", ring.Bytes[0], "scratch:", c.Load32(device.Bar0, 4))
		ring.Bytes[0] = 42
		c.Store32(device.Bar0, 4, 7)
		if err := c.Detach(); err != nil { // it could as well be killed
			fmt.Println(err)
		}
	}
	stop()
	fmt.Println("served:", <-served)
	// Output:
	// first kept: false ring: 0 scratch: 0
	// second kept: true ring: 42 scratch: 7
	// served: <nil>
}
