package driver

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"splicenic/driver/device"
	"splicenic/regs"
)

// A Key is what a CAM is asked for. Index is a VIP index on the client side and a server index on the server side, where
// Destination is zero. Where the client's address is replaced by a local one, Addr is the zero Addr and Local its index.
type Key struct {
	Protocol          uint8
	VLAN              uint16
	Port, Destination uint16
	Index             uint16
	Addr              netip.Addr
	Local             uint16
}

// A CAMEntry is a key that a CAM holds and its result.
type CAMEntry struct {
	Slot   uint32 // of its first word
	Key    Key
	Handle Handle
	LegB   bool
}

// CAMInsert inserts a key. It fails with ErrKeyExists or, where there is no place, ErrTableFull.
func (c *Card) CAMInsert(ctx context.Context, side int, k Key, h Handle, legB bool) error {
	_, err := c.cam(ctx, regs.CommandControlTypeCamInsert, side, k, h, legB)
	return err
}

// CAMErase erases a key.
func (c *Card) CAMErase(ctx context.Context, side int, k Key) error {
	_, err := c.cam(ctx, regs.CommandControlTypeCamErase, side, k, 0, false)
	return err
}

// CAMLookup looks a key up; ErrNotFound where the CAM does not hold it.
func (c *Card) CAMLookup(ctx context.Context, side int, k Key) (h Handle, legB bool, err error) {
	done, err := c.cam(ctx, regs.CommandControlTypeCamLookup, side, k, 0, false)
	if err != nil {
		return 0, false, err
	}
	return Handle(done.Result[1]), regs.CamWordControlLegB(done.Result[0]) != 0, nil
}

func (c *Card) cam(ctx context.Context, verb uint32, side int, k Key, h Handle, legB bool) (done regs.CompletionEntry, err error) {
	if side < 0 || side >= regs.CamInstances {
		return done, fmt.Errorf("%s: side %d: %w", commandName("type", verb), side, device.ErrRange)
	}
	cmd := h.command(verb)
	cmd.FlagsServerSide, cmd.FlagsLegB = uint32(side), bit(legB)
	data := k.encode(&cmd)
	cmd.KeyControlLegB = bit(legB)
	if err := c.acquire(ctx); err != nil {
		return done, fmt.Errorf("%s: %w", commandName("type", verb), err)
	}
	defer c.release()
	return c.command(ctx, &cmd, data)
}

// encode puts the key into a command and returns what the command fetches from memory.
func (k *Key) encode(cmd *regs.CommandEntry) (data []byte) {
	kind, w := AddressWords(k.Addr)
	switch kind {
	case regs.KindNone:
		kind, cmd.Value = regs.KindLocal, uint32(k.Local)
	case regs.KindIpv4:
		cmd.Value = w[0]
	case regs.KindIpv6:
		for _, x := range w {
			data = binary.LittleEndian.AppendUint32(data, x)
		}
	}
	cmd.KeyControlValid, cmd.KeyControlKind = 1, kind
	cmd.KeyControlProtocol, cmd.KeyControlVlan = uint32(k.Protocol), uint32(k.VLAN)
	cmd.KeyPortsPort, cmd.KeyPortsDestination = uint32(k.Port), uint32(k.Destination)
	cmd.KeyIndexIndex = uint32(k.Index)
	return data
}

// CAMEntries lists what a CAM holds in order of slots, until f returns false. The card goes on meanwhile: an entry that
// moves may be seen twice or not at all.
func (c *Card) CAMEntries(ctx context.Context, side int, f func(CAMEntry) bool) error {
	if side < 0 || side >= regs.CamInstances {
		return fmt.Errorf("list cam: side %d: %w", side, device.ErrRange)
	}
	index := regs.MemCamClient
	if side == regs.CamServer {
		index = regs.MemCamServer
	}
	err := c.scan(ctx, c.Memory(index), func(slot uint32, w []uint32) bool {
		e, ok := decodeCAM(slot, w)
		return !ok || f(e)
	})
	if err != nil {
		return fmt.Errorf("list cam: %w", err)
	}
	return nil
}

// decodeCAM decodes the word at a slot; w goes on behind it. A second word of an IPv6 key is no entry of its own.
func decodeCAM(slot uint32, w []uint32) (e CAMEntry, ok bool) {
	if ctl := w[regs.CamWordControl]; regs.CamWordControlValid(ctl) == 0 || regs.CamWordControlSecond(ctl) != 0 {
		return e, false
	}
	var first, second regs.CamWordEntry
	first.Decode(w)
	e = CAMEntry{
		Slot:   slot,
		Handle: NewHandle(first.HandleN, first.HandleGeneration),
		LegB:   first.ControlLegB != 0,
		Key: Key{
			Protocol: uint8(first.ControlProtocol), VLAN: uint16(first.ControlVlan), Index: uint16(first.IndexIndex),
			Port: uint16(first.PortsPort), Destination: uint16(first.PortsDestination),
		},
	}
	a := [4]uint32{first.Address[0]}
	switch first.ControlKind {
	case regs.KindLocal:
		e.Key.Local = uint16(a[0])
	case regs.KindIpv6:
		if len(w) < 2*regs.CamWordWords {
			return e, false
		}
		second.Decode(w[regs.CamWordWords:])
		copy(a[1:], second.Address[:])
	}
	e.Key.Addr = Address(first.ControlKind, a)
	return e, true
}

// scan reads a whole memory, one bulk command at a time, and hands out its entries until f returns false. f gets the
// words from the entry on to the end of what was read, and may use the card.
func (c *Card) scan(ctx context.Context, m *Memory, f func(index uint32, w []uint32) bool) error {
	if err := c.dataPath(); err != nil {
		return err
	}
	per := m.EntryBytes / 4
	words := make([]uint32, min(uint64(m.Entries)*uint64(per), stagingBytes/4))
	for at := uint32(0); at < m.Entries; {
		n := min(m.Entries-at, uint32(len(words))/per)
		if err := c.readTable(ctx, m.Memory.At(0, at), words[:n*per]); err != nil {
			return err
		}
		for i := range n {
			if !f(at+i, words[i*per:n*per]) {
				return nil
			}
		}
		at += n
	}
	return nil
}
