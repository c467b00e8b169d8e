// Package bitstream reads FPGA images of every vendor's format and says what they are: format, design, part, IDCODEs,
// date, compression, encryption, and whether what is inside is whole. It decides by content, never by a file's name, and
// takes every file for hostile: it returns errors, it does not panic, and no allocation is larger than what was read.
//
// It does no input or output beyond the io.Reader it is given.
package bitstream
