// Package ssram is BAR2 of the emulated card: pages, head buffers, CAM words, tables and lists, linearly at the offsets
// of the map.
//
// All of BAR2 is one anonymous mapping of the size of the BAR, so a word's place in it is its offset, and memory is
// backed only where something was stored: the default image takes 512 MiB of address space and as many resident bytes as
// connections and rules need. Pages, CAM words, the URL table and rules ask for huge pages, because
// packets and requests read some of each at random.
// The slices of a Memory are views of the mapping and end where the image's geometry ends; beyond lie holes, which
// read 0 and ignore stores.
//
// A Memory belongs to one goroutine at a time and starts none. Close returns the mapping; nothing may use a view then.
package ssram
