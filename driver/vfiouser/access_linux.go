package vfiouser

import (
	"errors"
	"fmt"
	"slices"

	"splicenic/driver/device"
)

// deviceInfo answers cmdDeviceInfo.
func (s *session) deviceInfo(body []byte) ([]byte, error) {
	if _, err := decodeDeviceInfo(body); err != nil {
		return nil, err
	}
	return appendDeviceInfo(start(s.out), deviceInfo{argsz: deviceInfoBytes, flags: deviceReset | devicePCI, regions: regionCount, irqs: irqIndexes}), nil
}

// regionSize returns how large a region is; 0: it is not there.
func (s *Server) regionSize(region uint32) uint64 {
	switch {
	case region == regionConfig:
		return configBytes
	case region < device.Regions:
		return s.info.Regions[region].Size
	}
	return 0
}

// regionInfo answers cmdRegionInfo. What does not fit into the size the client gave is left out, and the reply says how
// much there is.
func (s *session) regionInfo(body []byte) ([]byte, []int, error) {
	ask, err := decodeRegionInfo(body)
	if err != nil {
		return nil, nil, err
	}
	if ask.index >= regionCount {
		return nil, nil, violation("region info: index %d", ask.index)
	}
	i := regionInfo{argsz: regionInfoBytes, index: ask.index, size: s.srv.regionSize(ask.index), offset: uint64(ask.index) << 40}
	if i.size > 0 {
		i.flags = regionRead | regionWrite
	}
	f, ok, err := s.srv.regionFile(ask.index)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return appendRegionInfo(start(s.out), i), nil, nil
	}
	if i.argsz = regionInfoSize(len(f.Areas)); i.argsz > ask.argsz {
		return appendRegionInfo(start(s.out), i), nil, nil
	}
	i.flags |= regionMmap
	i.offset = f.Offset
	if len(f.Areas) > 0 {
		i.flags |= regionCaps
		i.capOffset, i.areas = regionInfoBytes, f.Areas
	}
	return appendRegionInfo(start(s.out), i), []int{f.FD}, nil
}

// regionFile asks the function what of a region a client may map.
func (s *Server) regionFile(region uint32) (RegionFile, bool, error) {
	f, ok := s.fn.(RegionMapper)
	if !ok || region >= device.Regions || s.info.Regions[region].Size == 0 {
		return RegionFile{}, false, nil
	}
	r, err := f.RegionFile(int(region))
	switch {
	case errors.Is(err, device.ErrNotSupported):
		return r, false, nil
	case err == nil && len(r.Areas) > maxAreas:
		err = fmt.Errorf("region %d has %d areas", region, len(r.Areas))
	}
	return r, err == nil, err
}

// check refuses what no bus would carry.
func (s *Server) check(a regionAccess) error {
	size := s.regionSize(a.region)
	if uint64(a.count) > size || a.offset > size-uint64(a.count) ||
		a.region < device.Regions && (a.count%4 != 0 || a.offset%4 != 0) {
		return fmt.Errorf("%d bytes at %#x of region %d: %w", a.count, a.offset, a.region, device.ErrRange)
	}
	return nil
}

func (s *session) readRegion(body []byte) ([]byte, error) {
	a, err := decodeRegionAccess(body, false)
	if err != nil {
		return nil, err
	}
	if err := s.srv.check(a); err != nil {
		return nil, err
	}
	out := appendRegionAccess(start(s.out), a)
	at := len(out)
	out = slices.Grow(out, int(a.count))[:at+int(a.count)]
	if a.region == regionConfig {
		err = s.srv.fn.ReadConfig(uint32(a.offset), out[at:])
	} else if a.count > 0 {
		err = s.srv.fn.ReadRegion(int(a.region), a.offset, out[at:])
	}
	return out, err
}

func (s *session) writeRegion(body []byte) ([]byte, error) {
	a, err := decodeRegionAccess(body, true)
	if err != nil {
		return nil, err
	}
	if err := s.srv.check(a); err != nil {
		return nil, err
	}
	if a.region == regionConfig {
		err = s.srv.writeConfig(uint32(a.offset), a.data)
	} else if a.count > 0 {
		err = s.srv.fn.WriteRegion(int(a.region), a.offset, a.data)
	}
	a.data = nil
	return appendRegionAccess(start(s.out), a), err
}

// writeConfig writes to configuration space. A function-level reset is the server's to do: the bit does not get through.
func (s *Server) writeConfig(off uint32, p []byte) error {
	flr := false
	if s.flr != 0 && covers(off, len(p), s.flr) {
		b := &p[s.flr-off]
		flr = *b&controlFLRByte1 != 0
		*b &^= controlFLRByte1
	}
	if err := s.fn.WriteConfig(off, p); err != nil {
		return err
	}
	if flr {
		return s.reset()
	}
	if covers(off, len(p), cfgCommand) || covers(off, len(p), cfgCommand+1) {
		return s.readMaster()
	}
	return nil
}

// readMaster notes whether the function may be bus master.
func (s *Server) readMaster() error {
	var b [2]byte
	if err := s.fn.ReadConfig(cfgCommand, b[:]); err != nil {
		s.memory.master.Store(false)
		return err
	}
	s.memory.master.Store(b[0]&commandMaster != 0)
	return nil
}

// reset resets the function. What the client set up for it, maps and eventfds, stays as it would over a reset of hardware
// behind an IOMMU: the function is given it anew.
func (s *Server) reset() error {
	_, fds := s.irqs[irqMSIX].raisers()
	err := s.setVectors(nil, nil)
	err = errors.Join(err, s.dma.reset(), s.readMaster())
	if len(fds) > 0 {
		err = errors.Join(err, s.applyVectors())
	}
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// irqInfo answers cmdIRQInfo.
func (s *session) irqInfo(body []byte) ([]byte, error) {
	ask, err := decodeIRQInfo(body)
	if err != nil {
		return nil, err
	}
	if ask.index >= irqIndexes {
		return nil, violation("irq info: index %d", ask.index)
	}
	b := &s.srv.irqs[ask.index]
	return appendIRQInfo(start(s.out), irqInfo{argsz: irqInfoBytes, flags: b.flags, index: ask.index, count: uint32(b.count)}), nil
}

func (s *session) setIRQs(m *message) error {
	set, err := decodeIRQSet(m.body)
	if err != nil {
		return err
	}
	if set.index >= irqIndexes {
		return violation("set irqs: index %d", set.index)
	}
	fds := m.fds
	m.fds = nil
	bank := &s.srv.irqs[set.index]
	changed, err := bank.set(set, fds)
	if err != nil || !changed {
		return err
	}
	switch set.index {
	case irqMSIX:
		return s.srv.applyVectors()
	case irqError, irqRequest:
		if s.srv.noticed(set.index) {
			bank.raise(0)
		}
	}
	return nil
}

// applyVectors tells the function what the client set up.
func (s *Server) applyVectors() error { return s.setVectors(s.irqs[irqMSIX].raisers()) }

func (s *Server) setVectors(raise []func(), fds []int) error {
	if f, ok := s.fn.(EventVectors); ok {
		return f.SetEventfds(fds)
	}
	return s.fn.SetVectors(raise)
}
