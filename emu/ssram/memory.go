package ssram

import (
	"fmt"
	"slices"

	"splicenic/regs"
)

// Bits of Memory.Dirty: which memories a host stored into since the data path last looked.
const (
	DirtyPages = 1 << iota
	DirtyCam
	DirtyListener
	DirtyServer
	DirtyVip
	DirtyLocal
)

// Memory is everything BAR2 shows.
type Memory struct {
	Geometry Geometry // with all defaults filled in

	Pages                                              []uint32 // WordsPerPage words each
	CamClient, CamServer                               []uint32
	Url, Rule, Listener, Service, Group                [2][]uint32 // by bank
	RuleCounter, Slot, GroupState, Server, ServerState []uint32
	NextHop, Vip, LocalAddress                         []uint32
	LocalPort, AddressList, QuarantineList, HeadList   []uint32
	SourceBucket, HalfOpenList                         []uint32

	// Dirty collects Dirty bits of stores through Store32, WriteAt and Clear. Whoever keeps an index of a memory
	// rebuilds it and clears the bit before the next batch.
	Dirty uint32

	words   []uint32 // all of BAR2
	heads   []byte
	windows []window // in order of offset
	release func() error
}

// A window is one bank of a memory.
type window struct {
	offset, end uint64 // bytes of BAR2 that the image has
	memory      int
	dirty       uint32
}

// New maps a memory of the given geometry, all zero.
func New(g Geometry) (*Memory, error) {
	g, err := g.Complete()
	if err != nil {
		return nil, err
	}
	words, release, err := reserve(regs.Bar2Bytes)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of card memory: %w", regs.Bar2Bytes, err)
	}
	m := &Memory{Geometry: g, words: words, release: release}
	m.layout()
	for _, big := range [][]uint32{m.Pages, m.CamClient, m.CamServer, m.Url[0], m.Url[1], m.Rule[0], m.Rule[1]} {
		hugePages(big)
	}
	return m, nil
}

// Close returns the memory.
func (m *Memory) Close() error {
	if m.release == nil {
		return nil
	}
	release := m.release
	*m = Memory{}
	return release()
}

// layout cuts the views out of the mapping.
func (m *Memory) layout() {
	views := [...][]*[]uint32{
		regs.MemPage: {&m.Pages}, regs.MemHead: {new([]uint32)}, regs.MemCamClient: {&m.CamClient}, regs.MemCamServer: {&m.CamServer},
		regs.MemUrl: {&m.Url[0], &m.Url[1]}, regs.MemRule: {&m.Rule[0], &m.Rule[1]}, regs.MemRuleCounter: {&m.RuleCounter},
		regs.MemSlot: {&m.Slot}, regs.MemListener: {&m.Listener[0], &m.Listener[1]}, regs.MemService: {&m.Service[0], &m.Service[1]},
		regs.MemGroup: {&m.Group[0], &m.Group[1]}, regs.MemGroupState: {&m.GroupState},
		regs.MemServer: {&m.Server}, regs.MemServerState: {&m.ServerState}, regs.MemNextHop: {&m.NextHop},
		regs.MemVip: {&m.Vip}, regs.MemLocalAddress: {&m.LocalAddress}, regs.MemLocalPort: {&m.LocalPort},
		regs.MemAddressList: {&m.AddressList}, regs.MemQuarantineList: {&m.QuarantineList}, regs.MemHeadList: {&m.HeadList},
		regs.MemSourceBucket: {&m.SourceBucket}, regs.MemHalfOpenList: {&m.HalfOpenList},
	}
	dirty := [len(regs.Memories)]uint32{
		regs.MemPage: DirtyPages, regs.MemCamClient: DirtyCam, regs.MemCamServer: DirtyCam,
		regs.MemListener: DirtyListener, regs.MemServer: DirtyServer, regs.MemVip: DirtyVip, regs.MemLocalAddress: DirtyLocal,
	}
	for i := range regs.Memories {
		info := &regs.Memories[i]
		for bank, view := range views[i] {
			w := window{offset: info.At(uint32(bank), 0), memory: i, dirty: dirty[i]}
			w.end = w.offset + m.Geometry.entries(i)*uint64(info.EntryBytes)
			*view = m.words[w.offset/4 : w.end/4 : w.end/4]
			m.windows = append(m.windows, w)
		}
	}
	slices.SortFunc(m.windows, func(a, b window) int { return int(int64(a.offset) - int64(b.offset)) })
	m.heads = bytesOf(m.words[regs.MemHeadOffset/4:][:uint64(m.Geometry.Heads)*HeadBytes/4])
}

// Page returns page n.
func (m *Memory) Page(n uint32) []uint32 {
	at := uint64(n) * WordsPerPage
	return m.Pages[at : at+WordsPerPage : at+WordsPerPage]
}

// Head returns head buffer i.
func (m *Memory) Head(i uint32) []byte {
	at := uint64(i) * HeadBytes
	return m.heads[at : at+HeadBytes : at+HeadBytes]
}
