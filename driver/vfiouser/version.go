package vfiouser

import (
	"bytes"
	"encoding/json"

	"splicenic/driver/device"
)

// Versions of the protocol that this package speaks: 0.0 and 0.1.
const (
	protocolMajor = 0
	protocolMinor = 1

	versionBytes = 4
	maxVersion   = 16 << 10 // of the whole payload
	maxRanges    = 64

	pageSizes   = 4096
	maxMaps     = 65535
	minTransfer = 64
)

// version is the first message and its reply: numbers, then JSON text that ends with a zero byte and may be missing.
type version struct {
	major, minor uint16
	caps         *capabilities // nil: none were told
}

// capabilities are what a side offers; nil: not told, which means the protocol's default.
type capabilities struct {
	MaxFDs      *uint64  `json:"max_msg_fds,omitempty"`
	MaxTransfer *uint64  `json:"max_data_xfer_size,omitempty"`
	MaxMaps     *uint64  `json:"max_dma_maps,omitempty"`
	PageSizes   *uint64  `json:"pgsizes,omitempty"`
	Twin        *twin    `json:"twin_socket,omitempty"`
	Own         *ownCaps `json:"splicenic,omitempty"`
}

// twin is about a second socket, for messages from server to client and their replies.
type twin struct {
	Supported bool    `json:"supported"`
	Index     *uint64 `json:"fd_index,omitempty"` // of the reply's file descriptors
}

// ownCaps is what server and client of this package tell each other. A client that does not send it gets none.
type ownCaps struct {
	Ranges []ownRange `json:"iova_ranges,omitempty"`
	Node   *int       `json:"numa_node,omitempty"`
	// Remap: DMA maps without reply take effect together with the next one that has a reply.
	Remap bool `json:"atomic_remap,omitempty"`
}

type ownRange struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func pointer[T any](v T) *T { return &v }

func (c *capabilities) maxTransfer() uint64 {
	if c == nil || c.MaxTransfer == nil {
		return maxTransfer
	}
	return min(*c.MaxTransfer, maxTransfer)
}

func (c *capabilities) maxFDs() int {
	if c == nil || c.MaxFDs == nil {
		return 1
	}
	return int(min(*c.MaxFDs, maxFDs))
}

func (c *capabilities) twin() bool { return c != nil && c.Twin != nil && c.Twin.Supported }

// ranges returns what own tells about IOVAs, nil if it is nothing or makes no sense.
func (c *capabilities) ranges() []device.IOVARange {
	if c == nil || c.Own == nil || len(c.Own.Ranges) > maxRanges {
		return nil
	}
	var rs []device.IOVARange
	for _, r := range c.Own.Ranges {
		if r.First > r.Last {
			return nil
		}
		rs = append(rs, device.IOVARange{First: r.First, Last: r.Last})
	}
	return rs
}

func appendVersion(b []byte, v version) ([]byte, error) {
	b = le.AppendUint16(le.AppendUint16(b, v.major), v.minor)
	if v.caps == nil {
		return b, nil
	}
	text, err := json.Marshal(struct {
		C *capabilities `json:"capabilities"`
	}{v.caps})
	return append(append(b, text...), 0), err
}

func decodeVersion(b []byte) (version, error) {
	if len(b) < versionBytes || len(b) > maxVersion {
		return version{}, violation("version of %d bytes", len(b))
	}
	v := version{major: le.Uint16(b), minor: le.Uint16(b[2:])}
	text, rest, _ := bytes.Cut(b[versionBytes:], []byte{0})
	if len(rest) != 0 {
		return v, violation("version: %d bytes behind the text", len(rest))
	}
	if len(text) == 0 {
		return v, nil
	}
	var data struct {
		C *capabilities `json:"capabilities"`
	}
	if err := json.Unmarshal(text, &data); err != nil {
		return v, violation("version: %v", err)
	}
	v.caps = data.C
	if v.caps.maxTransfer() < minTransfer {
		return v, violation("version: max_data_xfer_size %d", v.caps.maxTransfer())
	}
	return v, nil
}

// answer is the server's reply to a client's version: of what the client named, what we offer.
func answer(v version, info device.Info) version {
	r := version{major: protocolMajor, minor: min(v.minor, protocolMinor)}
	if v.caps == nil {
		return r
	}
	r.caps = &capabilities{}
	offer := func(asked *uint64, v uint64) *uint64 {
		if asked == nil {
			return nil
		}
		return &v
	}
	r.caps.MaxFDs = offer(v.caps.MaxFDs, maxFDs)
	r.caps.MaxTransfer = offer(v.caps.MaxTransfer, maxTransfer)
	r.caps.MaxMaps = offer(v.caps.MaxMaps, maxMaps)
	r.caps.PageSizes = offer(v.caps.PageSizes, pageSizes)
	if v.caps.Own != nil {
		r.caps.Own = &ownCaps{Node: pointer(info.NUMANode), Remap: true}
		for _, i := range info.IOVA {
			r.caps.Own.Ranges = append(r.caps.Own.Ranges, ownRange{i.First, i.Last})
		}
	}
	return r
}
