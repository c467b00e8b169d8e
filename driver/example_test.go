package driver

import (
	"context"
	"errors"
	"fmt"

	"splicenic/driver/device"
	"splicenic/regs"
)

// A card is opened on a device, used, shut down, and its device closed, in this order.
func ExampleOpen() {
	fake := newFakeCard() // a program has a device from package vfio or an emulated card
	dev := device.Local(fake, device.LocalConfig{})
	defer dev.Close()

	ctx := context.Background()
	card, err := Open(ctx, dev, Config{Pump: fake.step})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer card.Shutdown(ctx)

	// Tables are written to the idle bank and put in force by one store.
	off, err := card.Memory(regs.MemService).At(1, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	var words [regs.ServiceWords]uint32
	service := regs.ServiceEntry{ControlValid: 1}
	service.Encode(words[:])
	if err := card.WriteTable(ctx, off, words[:]); err != nil {
		fmt.Println(err)
		return
	}
	if err := card.SwitchBank(1, 1); err != nil {
		fmt.Println(err)
		return
	}

	// Exceptions are answered before they are given back.
	fake.exception(regs.ExceptionEntry{ReasonReason: regs.ExceptionReasonReasonNotIp}, "who has 198.18.0.80?")
	batch := make([]Exception, 16)
	for _, e := range batch[:card.Exceptions(batch)] {
		fmt.Printf("%s\n", e.Frame)
		if err := card.Emit(int(e.ControlPort), []byte("198.18.0.80 is here")); err != nil {
			fmt.Println(err)
		}
	}
	card.CommitExceptions()
	fake.step()
	fmt.Println(fake.injected[0].frame)
	// Output:
	// who has 198.18.0.80?
	// 198.18.0.80 is here
}

// A process that ends leaves the card to the next one, which finds connections and tables as they were.
func ExampleCard_Leave() {
	fake := newFakeCard()
	dev := device.Local(fake, device.LocalConfig{}) // one that outlives the process, such as a vfiouser.Client that is detached
	defer dev.Close()

	ctx := context.Background()
	card, err := Open(ctx, dev, Config{Adopt: true, Pump: fake.step})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("adopted:", card.Adopted())
	if err := errors.Join(card.SwitchBank(1, 1), card.Accept(true), card.Leave(ctx)); err != nil {
		fmt.Println(err)
		return
	}

	next, err := Open(ctx, dev, Config{Adopt: true, Pump: fake.step})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer next.Shutdown(ctx)
	fmt.Println("adopted:", next.Adopted())
	fmt.Println(next.Bank())
	// Output:
	// adopted: false
	// adopted: true
	// 1 1
}
