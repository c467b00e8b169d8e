//go:build !pagewords

package datapath

// ld and st are every access of the packet mapping unit to a page. Built with the tag pagewords they count.
func ld(w *page, i int) uint32 { return w[i] }

func st(w *page, i int, v uint32) { w[i] = v }
