// Package image is what an image configures the emulated card to be, and the streams that carry it: streams of the part the
// card says it is, with sync word, IDCODE, frame data and checks, as a flash holds them and the configuration logic reads
// them. Only what the frames mean is this package's own: the first of them hold the Params as text.
//
// It knows no card and no flash, and takes every stream for hostile.
package image
