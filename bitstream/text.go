package bitstream

import (
	"fmt"
)

// image makes an Image of decoded text: what is inside is detected again.
func (d *decoded) image(name Format) (*Image, error) {
	img := &Image{}
	found := -1
	for i, s := range d.segments {
		f, err := detect(s.Data[:min(len(s.Data), headBytes)])
		if err != nil {
			return nil, fmt.Errorf("the bytes at address 0x%08x: %w", s.Address, err)
		}
		if f == nil || f.text != nil {
			continue
		}
		inner, err := f.read(s.Data)
		if err != nil {
			return nil, fmt.Errorf("the bytes at address 0x%08x: %w", s.Address, err)
		}
		img, found = inner, i
		break
	}
	content := img.Format
	img.Format = name
	if t := d.text; t != nil {
		img.Design, img.Part, img.Date, img.Tool = t.Design, t.Part, t.Date, t.Tool
	}
	img.Fields = append(d.fields, img.Fields...)
	var total int64
	for i, s := range d.segments {
		total += int64(len(s.Data))
		if i > 0 {
			end := int64(d.segments[i-1].Address) + int64(len(d.segments[i-1].Data))
			img.Gaps = append(img.Gaps, Span{end, int64(s.Address) - end})
		}
		if i < 16 {
			img.Field("region", fmt.Sprintf("0x%08x, %d bytes", s.Address, len(s.Data)))
		}
	}
	if n := len(d.segments); n > 16 {
		img.Field("regions", fmt.Sprint(n))
	}
	img.Payload = Span{int64(d.segments[0].Address), total}
	img.Notes = append(img.Notes, d.notes...)
	if found < 0 {
		img.Whole = true
		img.Check = Integrity{State: Absent, Why: "the bytes are no image that is known"}
		img.Segments = d.segments
		return img, nil
	}
	img.Field("content", string(content))
	switch content {
	case XilinxBin, ICE40, IntelRbf, LatticeECP5, LatticeNexus, EfinixBin: // what a device takes, header or not
		if img.Segments != nil {
			img.Segments = d.segments
		}
	default:
		img.Segments = nil
		img.Note(fmt.Sprintf("the text stands for a whole %s file; turn that file's stream into text, not the file", content))
	}
	return img, nil
}
