package view

import (
	"fmt"

	"splicenic/regs"
)

// A RefusedError is an ErrRefused that knows what to do instead.
type RefusedError struct{ Why, Do string }

func (e *RefusedError) Error() string { return e.Why }

// Is makes it an ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// What to do instead of a store that a runtime would not notice, or not survive.
const (
	doReset = "splicectl card reset brings the card up anew and writes the configuration again"
	doApply = "change the configuration file, then: splicectl config apply -c FILE"
	doStop  = "stop the runtime first"
)

// driven are the registers that a runtime has in hand, by block and register: it stores them itself and goes by what it
// stored, or they take the image away below it. All registers of a block where none is named. What shapes the card's work
// (time-outs, watermarks, MTU) and what only looks at it (interrupt_test, scratch, sensor) may be stored at any time.
var driven = []struct{ block, register, why, do string }{
	{"control", "reset", "a reset behind the runtime's back takes tables and rings from it", doReset},
	{"configuration", "boot_command", "another image would replace the one that it drives", doStop},
	{"configuration", "icap_command", "another image would replace the one that it drives", doStop},
	{"port", "control", "it opens the ports that its configuration has", doStop},
	{"amu", "control", "it opens the card when its tables are complete", "to take no new connections give every server weight 0: splicectl config apply -c FILE"},
	{"cam", "hash_key", "the place of every entry depends on it", doReset},
	{"transmit", "isn_key", "the sequence numbers of connections depend on it", doReset},
	{"defence", "key", "cookies on their way depend on it", doReset},
	{"table", "bank", "it switches banks when it has written one", doApply},
	{"hostif", "control", "its rings would stop", doReset},
	{"hostif", "cause", "it would miss what it has not read yet", "splicectl reg get hostif.cause shows it"},
	{"ring", "", "it keeps the ring's indexes and memory", doReset},
}

// inHand refuses the registers that the runtime has in hand.
func inHand(l regs.Location) error {
	for _, d := range driven {
		if d.block == l.Block.Name && (d.register == "" || d.register == l.Register.Name) {
			return &RefusedError{Why: fmt.Sprintf("the runtime drives %s while it runs: %s", l.Name(), d.why), Do: d.do}
		}
	}
	return nil
}
