package ring

import "fmt"

// A consumer receives a batch, does what it says, and only then gives the slots back.
func ExampleConsumer() {
	mem := make([]byte, 8*DescriptorBytes) // DMA memory
	bell := &bells{}                       // a device
	c, err := NewConsumer(mem, nil, 0, 0, Bell{Dev: bell, Region: 0, Off: 0x24})
	if err != nil {
		fmt.Println(err)
		return
	}
	card := newRefProducer(mem, 0, 0)
	card.produce(bell.value, 100)
	card.produce(bell.value, 200)

	batch := make([]Descriptor, 16)
	for _, d := range batch[:c.Recv(batch)] {
		fmt.Println(d[7])
	}
	c.Commit()
	fmt.Println("published", bell.value)
	// Output:
	// 107
	// 207
	// published 2
}
