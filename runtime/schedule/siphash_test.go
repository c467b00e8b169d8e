package schedule

import "testing"

// TestSipHash checks the published vectors (Aumasson and Bernstein 2012, appendix A, and the vectors of their code): the
// key is 00 01 … 0f, the message 00 01 ….
func TestSipHash(t *testing.T) {
	message := make([]byte, 64)
	for i := range message {
		message[i] = byte(i)
	}
	for _, tt := range []struct {
		bytes int
		want  uint64
	}{
		{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {7, 0xab0200f58b01d137}, {8, 0x93f5f5799a932462},
		{15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb}, {31, 0x32d892fad841c342}, {32, 0x7127512f72f27cce}, {63, 0x958a324ceb064572},
	} {
		if got := sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, message[:tt.bytes]); got != tt.want {
			t.Errorf("%d bytes: got %#x, want %#x", tt.bytes, got, tt.want)
		}
	}
}
