package exception

// A Reason says why a frame was dropped, or what was done with it.
type Reason uint8

// What was done.
const (
	ARPReply Reason = iota
	NeighborReply
	EchoReply
	Reset           // RST for a closed port
	Unreachable     // port or protocol unreachable
	HostUnreachable // the next hop of a routed packet does not answer
	TimeExceeded
	TooBig
	Forwarded
	Learned // ARP or neighbour discovery that told something
	Refused // a connection ended by command: the request cannot be served
	Solicited
	Announced

	DropMalformed   // cannot be decoded, or a checksum is wrong
	DropIgnored     // ARP, neighbour discovery or ICMP that is not for us
	DropForwardOff  // other traffic at a port that does not forward
	DropNoRoute     // no subnet and no gateway leads there
	DropSource      // the source cannot be answered or routed
	DropDestination // multicast, broadcast or link-local; not routed
	DropFragment    // a fragment for an address of ours
	DropICMPError   // ICMP error for an address of ours
	DropVLAN        // more than one VLAN tag
	DropNextHop     // the next hop of a connection or of a queued packet is not resolved
	DropQueueFull   // more packets wait for next hops than allowed
	DropLimited     // an answer beyond its rate
	DropReset       // an RST for a closed port
	DropOversize    // too big for the next network, and not to be told
	DropState       // the card could not classify it
	DropOpening     // a SYN for a listener that opens soon; the client sends it again
	DropEmit        // the inject ring was full
	DropCommand     // the card refused the command
	Conflict        // somebody else uses an address of ours

	reasons
)

var reasonNames = [reasons]string{
	"arp_reply", "neighbour_reply", "echo_reply", "reset", "unreachable", "host_unreachable", "time_exceeded", "too_big", "forwarded", "learned", "refused", "solicited", "announced",
	"drop_malformed", "drop_ignored", "drop_forward_off", "drop_no_route", "drop_source", "drop_destination", "drop_fragment", "drop_icmp_error", "drop_vlan",
	"drop_next_hop", "drop_queue_full", "drop_limited", "drop_reset", "drop_oversize", "drop_state", "drop_opening", "drop_emit", "drop_command", "address_conflict",
}

// String returns the reason as counters name it.
func (r Reason) String() string { return reasonNames[min(r, reasons-1)] }

// Reasons returns all reasons.
func Reasons() []Reason {
	all := make([]Reason, reasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
