//go:build pagewords

package datapath

import "splicenic/regs"

// pageLoads and pageStores mark the words of the page that the packet mapping unit touched since they were cleared.
var pageLoads, pageStores [regs.PageWords]bool

func ld(w *page, i int) uint32 {
	pageLoads[i] = true
	return w[i]
}

func st(w *page, i int, v uint32) {
	pageStores[i] = true
	w[i] = v
}
