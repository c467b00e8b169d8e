// Package oracle watches both wires of a card and says what no honest splice would do.
//
// It gets every frame of the client's wire and of the server's, in order of time, and follows the TCP connections in
// them: a connection of a client, and the one that the card opens toward a server for it. It reports where the two
// streams of bytes differ, where a segment of the card would not be taken by its receiver, and where the card promised,
// acknowledged or echoed something that nobody stands behind (see Kind).
//
// It knows nothing of the card but what its wires show, so it holds for any card, and for a capture of both wires. Frames
// may be seen before a bad wire loses some of them or behind it: no rule depends on a frame that is not seen. What an end
// sends against the rules, as a blind attacker does, the card may pass on: a segment of the card that is the exact image
// of an end's goes without judgement.
//
// What the card has altered at the beginning of a client's stream it is told by Config.Altered: nothing on the wires tells
// a policy from a fault.
//
// Memory is bounded: streams are compared as they flow, and what is acknowledged is forgotten.
package oracle
