package exception

import "splicenic/regs"

// What one step does about one reason at most, so that a flood of one kind keeps nobody else waiting: what is beyond costs
// no more than being counted.
const (
	frameShare = 128 // frames
	wordShare  = 128 // refusals in words; those beyond are resets, which take one command
)

const exceptionReasons = regs.ExceptionReasonReasonFragmented + 1

// shares counts what was done since the last Advance.
type shares struct {
	frames  [exceptionReasons]uint16
	refused [reasons]uint16
	dropped [exceptionReasons]uint64 // ever
}

// frame says whether one more frame of a reason may be looked at.
func (s *shares) frame(reason uint32) bool {
	if reason = min(reason, exceptionReasons-1); s.frames[reason] == frameShare {
		s.dropped[reason]++
		return false
	}
	s.frames[reason]++
	return true
}

// words says whether one more refusal may be told in words.
func (s *shares) words(why Reason) bool {
	if s.refused[why] == wordShare {
		return false
	}
	s.refused[why]++
	return true
}

// Dropped returns how many frames were beyond their reason's share, by reason of the card.
func (h *Handler) Dropped() [exceptionReasons]uint64 { return h.shares.dropped }
