package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"splicenic/regs"
	"splicenic/runtime/view"
)

// PageText writes a page by the names of its words, a line a word, and its head buffer below.
func PageText(w io.Writer, p view.Page) {
	fmt.Fprintf(w, "page %d at L = n × m = %s, %s\n", p.N, p.L, p.State)
	format, _ := regs.LookupFormat("page")
	var lines [][2]string
	for i := range format.Words {
		word := &format.Words[i]
		if !word.Reserved() {
			lines = append(lines, [2]string{"  " + word.Name, wordText(&p, word)})
		}
	}
	pairs(w, lines...)
	if p.Head != nil {
		fmt.Fprintf(w, "head buffer %d, %d bytes\n", p.Head.Buffer, p.Head.Bytes)
		for line := range strings.Lines(p.Head.Text) {
			fmt.Fprintf(w, "  | %s\n", strconv.QuoteToGraphic(strings.TrimRight(line, "\r\n")))
		}
	}
}

// word is the text of a word: its fields, or its value.
func wordText(p *view.Page, word *regs.WordInfo) string {
	if len(word.Fields) == 0 {
		return value(p.Fields[word.Name], word.Unit)
	}
	var parts []string
	for _, f := range word.Fields {
		parts = append(parts, f.Name+"="+value(p.Fields[word.Name+"."+f.Name], f.Unit))
	}
	return strings.Join(parts, " ")
}

func value(v any, unit string) string {
	s := fmt.Sprint(v)
	switch v := v.(type) {
	case nil:
		return "-"
	case float64:
		s = decimal(v)
	}
	if unit != "" {
		return s + " " + unit
	}
	return s
}
