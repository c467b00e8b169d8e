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
	Learned    // ARP or neighbour discovery that told something
	Refused    // a connection ended by command: the request cannot be served
	Replied    // a connection answered by command: the request cannot be served
	Alerted    // the same with a TLS alert
	Answered   // a connection answered by command, as a rule or a group says
	RuleByHost // a request whose rule the host found
	Rewritten  // a connection whose server gets other bytes than the card held
	Gathered   // bytes of a head that outgrows the head buffer
	HeadGathered
	Fed        // bytes that a server is owed, given to the card
	Sorry      // a request sent on to what is sorry for its group
	EndUnknown // an only request whose head does not tell its end
	BehindLast // bytes behind an only request that went nowhere
	ClientGone // a client closed before the end of a gathered head

	// Why connections were refused.
	RefusedRequest // a malformed head
	RefusedVersion // of HTTP
	RefusedTarget  // too long
	RefusedHead    // too large
	RefusedTimeout // the head did not end in time
	RefusedNoRule
	RefusedNoServer
	RefusedNotHTTP
	RefusedNotTLS
	RefusedH2C
	RefusedHello   // a malformed ClientHello
	RefusedTooMany // more large heads at once than the host has room for

	ServerAgain // a connection offered to another server
	PortMoved   // a connection offered by another source port than the client's
	Solicited
	Announced
	ICMPToClient // an ICMP error about a segment of the client's, translated
	ICMPToServer // the same about a server's
	ICMPOwn      // an ICMP error about a segment of the card's own: it is sent again all the same
	PathMTU      // a next hop's path was found to take less
	FragmentKept // a fragment that waits for the others of its packet
	Reassembled  // a packet put together from its fragments
	Fragmented   // a packet sent in fragments
	FragmentSent // such a fragment
	SNATOut      // a packet that a server started, sent by an address of the pool
	SNATIn       // what came back
	SNATError    // an ICMP error about either
	Probe        // a SYN that asks a server for its profile
	ProbeAnswer  // what came back
	Check        // a packet that asks a server whether it works
	CheckAnswer  // what came back
	Examine      // a packet of an examination
	ExamineAnswer

	ModuleAltered    // a line that a module altered
	ModuleExpects    // a line that announced a connection
	ModuleOpened     // a connection that a server began as announced
	ModuleForeign    // a line that named somebody else's address
	ModuleUnreadable // a line that a module could not read
	ModuleNoPort     // a line for which no local port was free
	ModuleEncrypted  // a control connection that is encrypted now: what follows it is not known
	ModuleUnread     // a segment that went on unread: of a service without module, as the configuration is now
	ModuleEvicted    // the oldest of too many connections, read anew from its next line on
	ModuleLate       // a line that should have been altered, and had gone on in part
	ModuleLong       // a line too long to be read
	ModuleWaits      // a line that waits until the receiver has all before the last altered one: it comes again
	ModuleExpired    // an announced connection that nobody opened in time

	DropMalformed   // cannot be decoded, or a checksum is wrong
	DropIgnored     // ARP, neighbour discovery or ICMP that is not for us
	DropForwardOff  // other traffic at a port that does not forward
	DropNoRoute     // no subnet and no gateway leads there
	DropSource      // the source cannot be answered or routed
	DropDestination // multicast, broadcast or link-local; not routed
	DropFragment    // a fragment for an address of ours that is not of TCP or UDP, or whose packet is dropped already
	DropFragmentDuplicate
	DropFragmentOverlap  // its packet is dropped whole
	DropFragmentTiny     // a first fragment without the whole transport header
	DropFragmentExpired  // packets that were not complete in time
	DropFragmentFull     // more fragments, or packets of one source, than there may be
	DropFragmentChecksum // the packet put together is wrong
	DropICMPError        // ICMP error for an address of ours
	DropICMPQuote        // ICMP error that quotes too little, or whose quote or checksum is wrong
	DropICMPUnknown      // ICMP error about a connection that there is not
	DropICMPMethod       // ICMP error about a connection to a server of a method that can carry none: another family, DSCP
	DropICMPWindow       // ICMP error about bytes that are not in flight
	DropICMPLimited      // ICMP error about a connection, beyond the rate
	DropVLAN             // more than one VLAN tag
	DropNextHop          // the next hop of a connection or of a queued packet is not resolved
	DropQueueFull        // more packets wait for next hops than allowed
	DropLimited          // an answer beyond its rate
	DropReset            // an RST for a closed port
	DropOversize         // too big for the next network, and not to be told
	DropState            // the card could not classify it
	DropOpening          // a SYN for a listener that opens soon; the client sends it again
	DropEmit             // the inject ring was full
	DropCommand          // the card refused the command
	DropShare            // more frames of one reason in a step than its share
	DropLate             // about a connection that has ended or gone on
	DropGatherFull       // the oldest of too many gathered heads
	DropFeedFull         // no room for what a server would be owed
	DropFeedLost         // a server is owed bytes that nobody has any more
	DropSNATProtocol     // a packet that a server started without ports or identifier to tell it by
	DropSNATPort         // every port of the pool that it may have is taken
	DropSNATFull         // more sessions than there may be
	DropSNATUnknown      // a packet to the pool that no server waits for
	DropSNATHairpin      // a packet from a server to the pool
	DropModuleHeld       // a segment of a line whose end is not there yet, or behind one that is missing: it comes again
	DropModuleExpect     // a connection that was announced and could not be made ready for
	Conflict             // somebody else uses an address of ours

	reasons
)

var reasonNames = [reasons]string{
	"arp_reply", "neighbour_reply", "echo_reply", "reset", "unreachable", "host_unreachable", "time_exceeded", "too_big", "forwarded", "learned", "refused", "replied", "alerted", "answered", "rule_by_host", "rewritten", "gathered", "head_gathered", "fed", "sorry", "end_unknown", "behind_last", "client_gone",
	"refused_request", "refused_version", "refused_target", "refused_head", "refused_timeout", "refused_no_rule", "refused_no_server", "refused_not_http", "refused_not_tls", "refused_h2c", "refused_hello", "refused_too_many",
	"server_again", "port_moved", "solicited", "announced",
	"icmp_to_client", "icmp_to_server", "icmp_own", "path_mtu", "fragment_kept", "reassembled", "fragmented", "fragment_sent", "snat_out", "snat_in", "snat_error", "probe", "probe_answer", "check", "check_answer", "examine", "examine_answer",
	"module_altered", "module_expects", "module_opened", "module_foreign", "module_unreadable", "module_no_port", "module_encrypted", "module_unread", "module_evicted", "module_late", "module_long", "module_waits", "module_expired",
	"drop_malformed", "drop_ignored", "drop_forward_off", "drop_no_route", "drop_source", "drop_destination", "drop_fragment",
	"drop_fragment_duplicate", "drop_fragment_overlap", "drop_fragment_tiny", "drop_fragment_expired", "drop_fragment_full", "drop_fragment_checksum",
	"drop_icmp_error", "drop_icmp_quote", "drop_icmp_unknown", "drop_icmp_method", "drop_icmp_window", "drop_icmp_limited", "drop_vlan",
	"drop_next_hop", "drop_queue_full", "drop_limited", "drop_reset", "drop_oversize", "drop_state", "drop_opening", "drop_emit", "drop_command", "drop_share", "drop_late", "drop_gather_full", "drop_feed_full", "drop_feed_lost", "drop_snat_protocol", "drop_snat_port", "drop_snat_full", "drop_snat_unknown", "drop_snat_hairpin", "drop_module_held", "drop_module_expect", "address_conflict",
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
