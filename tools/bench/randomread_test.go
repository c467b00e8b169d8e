package bench

import "testing"

// TestTangle follows the cycle: it comes back to its begin after all lines and not before.
func TestTangle(t *testing.T) {
	words := make([]uint32, 16*1000)
	tangle(words)
	at, steps := uint32(0), 0
	for {
		at = words[at]
		steps++
		if at == 0 || steps > 1000 {
			break
		}
	}
	if steps != 1000 {
		t.Errorf("the cycle has %d steps, want 1000", steps)
	}
}
