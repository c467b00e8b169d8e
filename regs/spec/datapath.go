package spec

// dataPathBlocks are the blocks whose layout may grow from release to release; the data-path digest tells.
func dataPathBlocks() []Block {
	return []Block{geometry(), port(), parser(), amu(), cam(), head(), urlTable(), table(), pmu(), transmit(), connection(), timer(), defence(), pass(), hostInterface(), ring()}
}

func ro(name string, offset uint32, unit, doc string) Register {
	return Register{Name: name, Offset: offset, Access: RO, Class: Identity, Max: number, Unit: unit, Doc: doc}
}

func geometry() Block {
	return Block{
		Name: "geometry", Type: 0x10, Version: 1, Offset: 0x10000, Stride: 0x1000,
		Doc: "How large this image's memories are and where every loop ends. All of it is a fact of the image.",
		Registers: []Register{
			ro("page_bytes", 0x00, "bytes", "m: the page of address n starts at L = n × m. A power of two."),
			ro("pages", 0x04, "pages", "Number of pages, hence of connections."),
			ro("heads", 0x08, "buffers", "Number of head buffers."),
			ro("head_bytes", 0x0c, "bytes", "Size of a head buffer."),
			ro("cam_client_words", 0x10, "words", "CAM words of the client side."),
			ro("cam_server_words", 0x14, "words", "CAM words of the server side."),
			ro("cam_word_bits", 0x18, "bits", "Width of a CAM word in silicon; an IPv4 key takes one word, an IPv6 key two."),
			ro("pipelines", 0x1c, "", "P: pipeline p owns the addresses n ≡ p mod P."),
			ro("listeners", 0x20, "entries", "Entries of the listener memory."),
			ro("services", 0x24, "entries", "Entries of the service table."),
			ro("groups", 0x28, "entries", "Entries of the group table."),
			ro("servers", 0x2c, "entries", "Entries of the server table."),
			ro("next_hops", 0x30, "entries", "Entries of the next-hop table."),
			ro("vips", 0x34, "entries", "Entries of the VIP address memory."),
			ro("local_addresses", 0x38, "entries", "Entries of the local address memory."),
			ro("rules", 0x3c, "entries", "Entries of the rule table."),
			ro("url_nodes", 0x40, "entries", "Nodes of one bank of the URL string match table."),
			ro("slots", 0x44, "entries", "Slots of one slot area of a group."),
			ro("local_ports", 0x48, "entries", "Entries of the local-port memory, for all servers."),
			ro("source_buckets", 0x54, "entries", "Token buckets of the SYN defence."),
			ro("ports", 0x4c, "", "Number of Ethernet ports."),
			ro("vectors", 0x50, "", "Number of interrupt vectors."),
			ro("max_cam_moves", 0x80, "", "Entries an insert may move before it is refused."),
			ro("max_option_bytes", 0x84, "bytes", "TCP option bytes looked at."),
			ro("max_sack_blocks", 0x88, "", "SACK blocks translated."),
			ro("max_extension_headers", 0x8c, "", "IPv6 extension headers walked."),
			ro("max_head_gaps", 0x90, "", "Gaps a request head may have while it arrives."),
			ro("max_path_segments", 0x94, "", "Path segments matched; deeper paths are punted."),
			ro("max_candidates", 0x98, "", "Candidate rules of one match."),
			ro("max_conditions", 0x9c, "", "Conditions tested on one candidate."),
			ro("max_compare", 0xa0, "", "Servers whose counters a group slot may compare."),
			ro("max_held_segments", 0xa4, "", "Segments of held bytes sent in one go: the initial window."),
			ro("max_answers", 0xa8, "segments", "Answers to segments out of place that a connection is given between two looks of the timer scan."),
			ro("max_servers_tried", 0xac, "servers", "Servers that a request is offered to."),
			ro("clock", 0xc0, "hertz", "Clock the cycle counts stand for."),
			{Name: "cycles", Offset: 0x100, Count: 16, Access: RO, Class: Identity, Max: number, Unit: "cycles",
				Doc: "Cycles a 64-byte packet spends in a block: parser, CAM, page read, PMU, page write, transmit, AMU, URL table (per byte), tables, exception; the rest are zero."},
		},
	}
}

func port() Block {
	return Block{
		Name: "port", Type: 0x11, Version: 1, Offset: 0x11000, Stride: 0x1000, Instances: []string{"client", "server"},
		Doc: "One Ethernet MAC. A one-armed card uses the client port alone.",
		Registers: join([]Register{
			{Name: "control", Offset: 0x00, Access: RW, Class: Control,
				Fields: []Field{f("enable", 0, 1, "Receive and transmit frames."), f("loopback", 1, 1, "What is transmitted is received again; nothing leaves."), f("promiscuous", 2, 1, "Take frames for any destination MAC.")}, Doc: "Operation of the port."},
			{Name: "status", Offset: 0x04, Access: RO, Class: Status,
				Fields: []Field{f("link", 0, 1, "The link is up."), f("present", 1, 1, "The port has a wire."), f("speed", 8, 20, "Megabit per second.")}, Doc: "State of the link."},
			{Name: "mac_lo", Offset: 0x08, Access: RW, Class: Pointer, Doc: "The port's MAC address, bits 0–31 of the number."},
			{Name: "mac_hi", Offset: 0x0c, Access: RW, Class: Control, Fields: []Field{f("address", 0, 16, "Bits 32–47.")}, Doc: "The port's MAC address, upper bits."},
			{Name: "mtu", Offset: 0x10, Access: RW, Class: Control, Unit: "bytes", Fields: []Field{{Name: "bytes", Lsb: 0, Width: 16, Reset: 1500, Doc: "Largest IP packet of one wire frame."}}, Doc: "MTU of the port."},
		}, counters(0x100,
			count{"rx_frames", "frames", "Frames received as the port took them."},
			count{"rx_segments", "frames", "The same counted as frames on a wire: a coalesced frame counts once per segment."},
			count{"rx_bytes", "bytes", "Bytes received, without FCS."},
			count{"rx_disabled", "frames", "Frames discarded because the port was not enabled."},
			count{"rx_filtered", "frames", "Frames for another station's MAC address."},
			count{"rx_oversize", "frames", "Frames larger than a buffer."},
			count{"rx_overrun", "frames", "Frames lost before the card could take them."},
			count{"tx_frames", "frames", "Frames handed to the wire."},
			count{"tx_segments", "frames", "The same counted as frames on a wire."},
			count{"tx_bytes", "bytes", "Bytes transmitted, without FCS."},
			count{"tx_disabled", "frames", "Frames not sent because the port was not enabled."},
			count{"tx_dropped", "frames", "Frames the wire refused."},
			count{"tx_cut", "frames", "Coalesced frames cut into segments at this port."},
			count{"link_changes", "", "Times the link went up or down."},
		), []Register{
			{Name: "rx_size", Offset: 0x200, Count: 6, Wide: true, Access: RO, Class: Counter, Unit: "frames", Doc: "Frames received of at most 64, 127, 511, 1023, 1518 and more bytes."},
			{Name: "tx_size", Offset: 0x240, Count: 6, Wide: true, Access: RO, Class: Counter, Unit: "frames", Doc: "Frames transmitted, same classes."},
		}),
	}
}

func parser() Block {
	return Block{
		Name: "parser", Type: 0x12, Version: 1, Offset: 0x14000, Stride: 0x1000, Instances: []string{"client", "server"},
		Doc: "Receive parser of a port: checks lengths and checksums, finds offsets, classifies.",
		Registers: counters(0x100,
			count{"class_syn", "frames", "First segments of a connection: SYN without ACK."},
			count{"class_request", "frames", "Segments with payload for a connection that waits for its request."},
			count{"class_ordinary", "frames", "Other segments of known connections."},
			count{"class_exception", "frames", "Frames handed to the host."},
			count{"drop_truncated", "frames", "A header or the IP length runs past the frame."},
			count{"drop_ip_header", "frames", "IP version or header length is not legal."},
			count{"drop_ip_checksum", "frames", "IPv4 header checksum wrong."},
			count{"drop_ip_source", "frames", "Source address is multicast, broadcast or this host."},
			count{"drop_tcp_header", "frames", "TCP data offset is not legal."},
			count{"drop_tcp_option", "frames", "A TCP option of a SYN has a length of 0 or 1 or runs past the header."},
			count{"drop_tcp_flags", "frames", "No flag at all, or SYN with FIN or RST."},
			count{"drop_tcp_checksum", "frames", "TCP checksum wrong."},
			count{"drop_udp_header", "frames", "UDP length is not legal, or a port or an IPv6 checksum is zero."},
			count{"drop_udp_checksum", "frames", "UDP checksum wrong."},
			count{"drop_extension_header", "frames", "IPv6 extension headers too many, too long or cut off."},
			count{"drop_offload", "frames", "Offload header of a coalesced frame does not fit the frame."},
			count{"exception_not_ip", "frames", "ARP and other EtherTypes."},
			count{"exception_icmp", "frames", "ICMP and ICMPv6, neighbour discovery included."},
			count{"exception_fragment", "frames", "IP fragments."},
			count{"exception_option", "frames", "IPv4 options and IPv6 hop-by-hop options."},
			count{"exception_protocol", "frames", "IP protocols other than TCP."},
			count{"exception_vlan", "frames", "More than one VLAN tag."},
			count{"exception_ttl", "frames", "TTL or hop limit used up."},
			count{"exception_no_match", "frames", "TCP that hits neither CAM and opens nothing."},
			count{"exception_too_big", "frames", "Packets larger than the next network takes whole, which may not be fragmented."},
		),
	}
}

func amu() Block {
	return Block{
		Name: "amu", Type: 0x13, Version: 1, Offset: 0x18000, Stride: 0x1000,
		Doc: "Address management unit: the address list, the quarantine list, the commands.",
		Registers: join([]Register{
			{Name: "control", Offset: 0x00, Access: RW, Class: Control, Fields: []Field{f("enable", 0, 1, "Accept new connections.")}, Doc: "Operation of the unit."},
			{Name: "status", Offset: 0x04, Access: RO, Class: Status, Fields: []Field{f("bulk_busy", 0, 1, "A bulk command is going on.")}, Doc: "State of the unit."},
			{Name: "list_head", Offset: 0x10, Access: RO, Class: Pointer, Doc: "Slot of the address list the next address is popped from."},
			{Name: "list_tail", Offset: 0x14, Access: RO, Class: Pointer, Doc: "Slot of the address list the next freed address goes to."},
			{Name: "free", Offset: 0x18, Access: RO, Class: Status, Max: number, Unit: "pages", Doc: "Addresses in the list: free pages."},
			{Name: "quarantine_head", Offset: 0x1c, Access: RO, Class: Pointer, Doc: "Oldest slot of the quarantine list."},
			{Name: "quarantine_tail", Offset: 0x20, Access: RO, Class: Pointer, Doc: "Slot of the quarantine list the next entry goes to."},
			{Name: "quarantined", Offset: 0x24, Access: RO, Class: Status, Max: number, Unit: "pages", Doc: "Entries in the quarantine list, those that left early included."},
			{Name: "low_watermark", Offset: 0x28, Access: RW, Class: Control, Unit: "pages", Fields: []Field{{Name: "pages", Lsb: 0, Width: 20, Reset: 64, Doc: "Number of free pages."}}, Doc: "With fewer free pages than this, quarantine ends early, oldest first; where none is in quarantine, passed connections that only their SYN is known of."},
			{Name: "live", Offset: 0x2c, Access: RO, Class: Status, Max: number, Unit: "connections", Doc: "Pages that are neither free nor in quarantine."},
			{Name: "half_open_head", Offset: 0x30, Access: RO, Class: Pointer, Doc: "Oldest slot of the half-open list."},
			{Name: "half_open_tail", Offset: 0x34, Access: RO, Class: Pointer, Doc: "Slot of the half-open list the next entry goes to."},
			{Name: "half_open", Offset: 0x38, Access: RO, Class: Status, Max: number, Unit: "pages", Doc: "Entries in the half-open list, those that came further or to an end included."},
			{Name: "bulk_sequence", Offset: 0x40, Access: RO, Class: Pointer, Doc: "Sequence number of the bulk command going on."},
			{Name: "bulk_verb", Offset: 0x44, Access: RO, Class: Status, Fields: []Field{f("verb", 0, 8, "Command verb.")}, Doc: "What the bulk command does."},
			{Name: "bulk_offset", Offset: 0x48, Access: RO, Class: Status, Max: Bar2Bytes, Unit: "bytes", Doc: "Where in BAR2 it goes on."},
			{Name: "bulk_left", Offset: 0x4c, Access: RO, Class: Status, Max: Bar2Bytes, Unit: "bytes", Doc: "What is left of it."},
			{Name: "bulk_iova", Offset: 0x50, Wide: true, Access: RO, Class: Pointer, Doc: "Where in host memory it goes on."},
			{Name: "bulk_value", Offset: 0x58, Access: RO, Class: Pointer, Doc: "Word that a fill writes."},
			{Name: "bulk_cookie", Offset: 0x5c, Access: RO, Class: Pointer, Doc: "Cookie of the bulk command, for its completion."},
		}, counters(0x100,
			count{"allocated", "pages", "Addresses popped."},
			count{"freed", "pages", "Addresses appended."},
			count{"quarantine_early", "pages", "Pages that left quarantine before their time: low watermark or a newer SYN."},
			count{"no_page", "connections", "New connections refused because the address list was empty."},
			count{"no_cam_place", "connections", "New connections refused because a CAM had no place within its bound."},
			count{"disabled", "connections", "New connections refused because the unit was not enabled."},
			count{"commands", "", "Commands carried out."},
			count{"stale_handle", "", "Commands whose generation was not the page's."},
			count{"command_error", "", "Commands refused for any other reason."},
			count{"half_open_early", "connections", "Passed connections given up before their handshake was over: low watermark."},
		)),
	}
}

func cam() Block {
	return Block{
		Name: "cam", Type: 0x14, Version: 1, Offset: 0x20000, Stride: 0x1000, Instances: []string{"client", "server"},
		Doc: "Exact match: key to address n, generation and leg set.",
		Registers: join([]Register{
			{Name: "free", Offset: 0x04, Access: RO, Class: Status, Max: number, Unit: "words", Doc: "Words not in use."},
			{Name: "entries", Offset: 0x08, Access: RO, Class: Status, Max: number, Unit: "entries", Doc: "Keys stored."},
			{Name: "hash_key", Offset: 0x10, Count: 4, Access: RW, Class: Key, Doc: "Key of the hash that places entries. May be stored only while the CAM is empty."},
		}, counters(0x100,
			count{"hits", "", "Lookups that found their key."},
			count{"misses", "", "Lookups that did not."},
			count{"inserts", "", "Keys inserted."},
			count{"erases", "", "Keys erased."},
			count{"moves", "", "Entries moved to make room."},
			count{"refused", "", "Inserts refused: no place within the bound."},
			count{"key_exists", "", "Inserts refused: the key is there already."},
		)),
	}
}

func head() Block {
	return Block{
		Name: "head", Type: 0x15, Version: 1, Offset: 0x24000, Stride: 0x1000,
		Doc: "Head memory: buffers that hold a request head until the server has acknowledged it.",
		Registers: join([]Register{
			{Name: "free", Offset: 0x00, Access: RO, Class: Status, Max: number, Unit: "buffers", Doc: "Buffers in the free list, which is a stack."},
			{Name: "lowest", Offset: 0x04, Access: RO, Class: Status, Max: number, Unit: "buffers", Doc: "Fewest free buffers since reset."},
			{Name: "low_watermark", Offset: 0x08, Access: RW, Class: Control, Unit: "buffers", Fields: []Field{{Name: "buffers", Lsb: 0, Width: 20, Reset: 16, Doc: "Number of buffers."}}, Doc: "With fewer free buffers than this the low event is raised."},
		}, counters(0x100,
			count{"taken", "buffers", "Buffers taken."},
			count{"released", "buffers", "Buffers given back."},
			count{"none_free", "segments", "First payloads dropped unacknowledged because no buffer was free."},
		)),
	}
}

func urlTable() Block {
	return Block{
		Name: "url", Type: 0x16, Version: 1, Offset: 0x25000, Stride: 0x1000,
		Doc: "URL string match table: walks the compiled rules over a whole request head.",
		Registers: counters(0x100,
			count{"lookups", "", "Heads matched."},
			count{"matched", "", "Heads that a rule took."},
			count{"defaulted", "", "Heads that went to the service's default."},
			count{"no_match", "", "Heads that no rule took and whose service has no default."},
			count{"malformed", "", "Heads that are not a legal request."},
			count{"not_http", "", "Heads whose first byte cannot start a request."},
			count{"too_deep", "", "Heads whose path has too many segments."},
			count{"not_tls", "", "Connections whose first byte begins no TLS record."},
			count{"bad_hello", "", "ClientHellos that are none, or illegal."},
			count{"no_sni", "", "ClientHellos without a server name."},
			count{"h2c", "", "Connections that begin with the preface of HTTP/2."},
			count{"host", "", "Requests that came to a rule which only the host can test."},
			count{"answered", "", "Requests that the host is to answer by a rule."},
		),
	}
}

func table() Block {
	return Block{
		Name: "table", Type: 0x17, Version: 1, Offset: 0x26000, Stride: 0x1000,
		Doc: "Bank switch of the listener, service, rule, group and URL tables.",
		Registers: []Register{
			{Name: "bank", Offset: 0x00, Access: RW, Class: Control,
				Fields: []Field{f("bank", 0, 1, "Bank in force."), f("generation", 8, 16, "Number of this configuration, chosen by the host.")},
				Doc:    "One store switches all banked tables together."},
			{Name: "in_use", Offset: 0x10, Count: 2, Access: RO, Class: Status, Max: number, Doc: "Lookups in progress in a bank."},
		},
	}
}

func pmu() Block {
	return Block{
		Name: "pmu", Type: 0x18, Version: 1, Offset: 0x27000, Stride: 0x1000,
		Doc: "Packet mapping unit: seq + a, ack − a, SACK edges, timestamps, windows, addresses, ports, MACs, TTL, checksum.",
		Registers: counters(0x100,
			count{"translated_client", "frames", "Frames translated from client to server."},
			count{"translated_server", "frames", "Frames translated from server to client."},
			count{"carries", "", "Additions whose carry or borrow corrected the checksum by one."},
			count{"sack_blocks", "blocks", "SACK blocks translated."},
			count{"timestamps", "", "Timestamp options translated."},
			count{"sack_removed", "options", "SACK options replaced by NOPs: the other end does not do SACK, or the blocks concern held bytes."},
			count{"window_rounded", "frames", "Windows rounded up to one unit of the promised scale."},
			count{"window_clamped", "frames", "Windows clamped to 65,535."},
			count{"ecn_cleared", "frames", "Packets whose ECN marks were cleared: the other end does not do ECN."},
		),
	}
}

func transmit() Block {
	return Block{
		Name: "transmit", Type: 0x19, Version: 1, Offset: 0x28000, Stride: 0x1000, Instances: []string{"client_end", "server_end"},
		Doc: "Transmit ends: the client end acts as the server in the client's handshake, the server end as the client in the server's.",
		Registers: join([]Register{
			{Name: "isn_key", Offset: 0x10, Count: 4, Access: WO, Class: Key, Doc: "Key of the initial sequence numbers and timestamp clocks this end chooses (RFC 6528)."},
		}, counters(0x100,
			count{"syn", "segments", "SYN or SYN-ACK segments sent."},
			count{"ack", "segments", "Segments without payload sent."},
			count{"held", "segments", "Segments of held bytes sent."},
			count{"rst", "segments", "RST segments sent."},
			count{"resent_syn", "segments", "SYN or SYN-ACK segments sent again."},
			count{"resent_held", "segments", "Segments of held bytes sent again."},
			count{"window", "segments", "ACKs that told the client the server's window when the page was armed."},
			count{"reply", "segments", "Segments of an answer of our own sent."},
			count{"resent_reply", "segments", "Segments of an answer of our own sent again."},
		)),
	}
}

func connection() Block {
	return Block{
		Name: "connection", Type: 0x1a, Version: 1, Offset: 0x2a000, Stride: 0x1000,
		Doc: "What became of connections: one counter per transition and per reason of a drop.",
		Registers: counters(0x100,
			count{"opened", "connections", "A SYN, or the proof that a cookie is, took a page."},
			count{"established", "connections", "The client completed its handshake."},
			count{"head_complete", "connections", "The whole request head was there."},
			count{"spliced", "connections", "Both handshakes done and the page armed."},
			count{"closed_fin", "connections", "Ended by two acknowledged FINs."},
			count{"closed_rst", "connections", "Ended by an exact RST of either side."},
			count{"reused", "connections", "Pages in quarantine recycled for a newer SYN of the same client port."},
			count{"reset_host", "connections", "Ended by a command of the host."},
			count{"expired_syn_rcvd", "connections", "Client silent after the SYN-ACK."},
			count{"expired_wait_head", "connections", "Request head not complete in time."},
			count{"expired_server_syn", "connections", "Server silent for the whole of its time, and no host was there to choose another."},
			count{"expired_idle", "connections", "Idle for too long."},
			count{"expired_closing", "connections", "Second FIN not acknowledged in time, or an answer of our own."},
			count{"abort_syn_ack", "connections", "SYN-ACK sent again as often as allowed, no answer."},
			count{"abort_server_syn", "connections", "SYN to the server sent again as often as allowed, no answer, and no host was there to choose another."},
			count{"abort_held", "connections", "Held bytes sent again as often as allowed, not acknowledged."},
			count{"abort_refused", "connections", "The server answered the SYN with RST, and no host was there to choose another."},
			count{"abort_profile", "connections", "The server's SYN-ACK does not keep what was promised to the client, and no host was there to choose another."},
			count{"abort_key_exists", "connections", "Another connection has the server-side key, and no host was there to find another way."},
			count{"abort_client_gone", "connections", "Client sent FIN or RST before the splice."},
			count{"abort_no_server", "connections", "The request led to no server: no rule and no default, an empty group, every server of it closed or behind an unresolved next hop, or those it was offered to failed."},
			count{"drop_bad_ack", "segments", "Acknowledges what was never sent; answered with RST or ACK as the state says."},
			count{"drop_duplicate", "segments", "Bytes that were held already; answered with an ACK."},
			count{"drop_out_of_order", "segments", "Bytes beyond a gap before the splice; answered with an ACK."},
			count{"drop_no_room", "segments", "Bytes for which the head buffer has no room."},
			count{"drop_waiting_host", "segments", "Segments of a connection whose request the host is deciding."},
			count{"drop_below_held", "segments", "Client segments wholly below the held boundary; answered with an ACK."},
			count{"drop_straddles_held", "segments", "Client segments that cross the held boundary."},
			count{"drop_old_syn", "segments", "SYNs whose sequence number does not follow the connection in quarantine."},
			count{"drop_rst", "segments", "RSTs before the splice that are not exact."},
			count{"drop_state", "segments", "Segments that mean nothing in their state."},
			count{"drop_next_hop", "segments", "Segments whose next hop is not resolved."},
			count{"drop_output_full", "frames", "Frames beyond what one batch may emit."},
			count{"drop_held_ack", "segments", "Server acknowledgements below the held boundary: they drive our timer only."},
			count{"drop_syn_ack", "segments", "SYN-ACKs of the server that repeat; answered with an ACK."},
			count{"drop_storm", "segments", "Segments out of place beyond the answers a connection is given between two looks of the scan."},
			count{"server_again", "connections", "The host chose another server: the one before refused, was silent or keeps less than was promised."},
			count{"server_stale", "connections", "A server answered our SYN as part of an older connection; it got a RST and the SYN again."},
			count{"server_profile", "connections", "A SYN-ACK kept less than the server's profile says, and could not be translated."},
			count{"server_learned", "connections", "A SYN-ACK differed from the server's profile."},
			count{"key_recycled", "connections", "A server-side key was taken from a connection in CLOSING or QUARANTINE."},
			count{"key_moved", "connections", "A source port of ours stands in for the client's: its server-side key was taken."},
			count{"replied", "connections", "The card answered in the server's place."},
			count{"rewritten", "connections", "The host altered what the server is sent first."},
			count{"gathered", "segments", "Segments of heads that the host gathers, since they outgrow the head buffer."},
			count{"fed", "", "Times the host filled a head buffer again."},
			count{"fallback", "connections", "Clients that sent nothing and went to the default group."},
			count{"head_timeout", "connections", "Clients whose head did not end in time; the host answers."},
			count{"drop_last_request", "segments", "Segments with bytes behind the only request; those bytes went nowhere."},
		),
	}
}

func pass() Block {
	return Block{
		Name: "pass", Type: 0x1f, Version: 1, Offset: 0x2f000, Stride: 0x1000,
		Doc: "Connections that are passed on to a server at their SYN or first datagram, and what leads them there.",
		Registers: counters(0x100,
			count{"opened", "connections", "A SYN or first datagram took a page and went to a server."},
			count{"one_packet", "datagrams", "Datagrams that chose a server without a page."},
			count{"sloppy", "connections", "Opened by a segment without SYN."},
			count{"established", "connections", "The client acknowledged; datagrams at once."},
			count{"closed_fin", "connections", "Both ends sent FIN."},
			count{"closed_rst", "connections", "An end sent RST."},
			count{"expired", "connections", "Silent for too long."},
			count{"nodest", "connections", "Reset since their server is gone."},
			count{"reused", "connections", "Pages that a new SYN of the same client port took over."},
			count{"drop_no_page", "segments", "Segments without SYN of no connection."},
			count{"drop_full", "segments", "First segments for which no page or CAM place was free."},
			count{"drop_no_server", "segments", "First segments for which the group had no server."},
			count{"drop_no_port", "segments", "First segments for which the server's list had no local port."},
			count{"drop_source", "segments", "First segments of clients that no service of the listener takes."},
			count{"drop_family", "segments", "Segments that cannot be said in the family of the other leg."},
			count{"drop_oversize", "packets", "Packets that no outer header has room for."},
			count{"template_taken", "templates", "Templates made."},
			count{"template_hit", "connections", "Connections that a template led."},
			count{"template_stale", "templates", "Templates given up since their server took no connection."},
			count{"template_expired", "templates", "Templates whose time was over."},
			count{"overloaded", "", "Times that a server reached its upper limit."},
			count{"routed", "packets", "Sent by direct routing."},
			count{"wrapped_ipip", "packets", "Wrapped in IP."},
			count{"wrapped_gre", "packets", "Wrapped in GRE."},
			count{"wrapped_gue", "packets", "Wrapped in GUE."},
			count{"marked_dscp", "packets", "Sent to the address of their server with a DSCP in the place of a tunnel."},
			count{"cut", "packets", "Coalesced packets that were cut before they were wrapped."},
			count{"module", "segments", "Segments that went by way of the host for an application module."},
			count{"shifted", "connections", "Streams that the host made longer or shorter."},
			count{"ports_taken", "ports", "Local ports handed out."},
			count{"ports_tired", "ports", "Local ports passed over since they had not rested."},
			count{"back", "frames", "Frames that came back to the host instead of going to a wire."},
		),
	}
}

func timeout(name string, offset, reset uint32, doc string) Register {
	return Register{Name: name, Offset: offset, Access: RW, Class: Control, Unit: "ticks", Fields: []Field{{Name: "ticks", Lsb: 0, Width: 28, Reset: reset, Doc: "Milliseconds."}}, Doc: doc}
}

func timer() Block {
	return Block{
		Name: "timer", Type: 0x1b, Version: 1, Offset: 0x2c000, Stride: 0x1000,
		Doc: "Timer scan: one sweep over all pages per interval, spread evenly. Time comes from here only; one tick is a millisecond.",
		Registers: join([]Register{
			{Name: "now", Offset: 0x00, Wide: true, Access: RO, Class: Pointer, Unit: "microseconds", Doc: "Time since reset as of the last step."},
			{Name: "tick", Offset: 0x08, Access: RO, Class: Pointer, Unit: "ticks", Doc: "The same in ticks, modulo 2^32."},
			{Name: "cursor", Offset: 0x0c, Access: RO, Class: Status, Max: number, Unit: "pages", Doc: "Page the scan looks at next."},
			{Name: "swept", Offset: 0x10, Wide: true, Access: RO, Class: Pointer, Unit: "microseconds", Doc: "Time up to which the scan has done its share."},
			timeout("interval", 0x18, 100, "Time of one sweep. Deadlines are late by at most one sweep."),
			timeout("syn_rcvd", 0x20, 10_000, "Time-out of SYN_RCVD."),
			timeout("wait_head", 0x24, 30_000, "Time-out of WAIT_HEAD, from the handshake."),
			timeout("server_syn", 0x28, 10_000, "Time-out of SERVER_SYN over all servers that a request is offered to: the first has half of it, each other a quarter."),
			timeout("idle", 0x2c, 7_440_000, "Time-out of SPLICED without traffic."),
			timeout("closing", 0x30, 60_000, "Time-out of CLOSING after the second FIN."),
			timeout("quarantine", 0x34, 1_000, "Time of QUARANTINE."),
			timeout("retransmit", 0x38, 1_000, "Time after which what this card sent itself is sent again, where no round trip was measured (RFC 6298, 2.1)."),
			{Name: "retransmit_limit", Offset: 0x3c, Access: RW, Class: Control, Fields: []Field{{Name: "times", Lsb: 0, Width: 4, Reset: 8, Doc: "Number of times."}}, Doc: "How often it is sent again before the connection is aborted; each time after twice the time. A time-out of the state may end it earlier."},
			timeout("retransmit_min", 0x40, 200, "Least time-out where the round trip was measured (RFC 6298, 2.4)."),
			timeout("retransmit_max", 0x44, 60_000, "Bound of the time-out that doubles at each retransmission (RFC 6298, 5.5)."),
			timeout("idle_datagram", 0x48, 300_000, "Time-out of datagrams without traffic."),
			timeout("port_rest", 0x4c, 60_000, "Time a local port rests before another connection has it, unless that begins above all that the old one sent."),
		}, counters(0x100,
			count{"sweeps", "", "Sweeps completed."},
			count{"looked_at", "pages", "Pages looked at."},
			count{"expired", "pages", "Deadlines that had passed."},
		)),
	}
}

func defence() Block {
	threshold := func(name string, offset, reset uint32, unit, doc string) Register {
		return Register{Name: name, Offset: offset, Access: RW, Class: Control, Unit: unit, Fields: []Field{{Name: "count", Lsb: 0, Width: 28, Reset: reset, Doc: "Number."}}, Doc: doc}
	}
	return Block{
		Name: "defence", Type: 0x1e, Version: 1, Offset: 0x2e000, Stride: 0x1000,
		Doc: "SYN defence: the stateless stage in front of the AMU, which answers SYNs with cookies and takes a page only for who has proved himself.",
		Registers: join([]Register{
			{Name: "status", Offset: 0x00, Access: RO, Class: Status, Fields: []Field{f("active", 0, 1, "Services with defence auto are answered with cookies."), f("sent", 1, 1, "A cookie was sent; last_sent is valid.")}, Doc: "State of the stage."},
			threshold("pages_on", 0x08, 0, "pages", "With fewer free pages than this the stage becomes active; zero: pages do not count."),
			threshold("pages_off", 0x0c, 0, "pages", "With fewer free pages than this it stays so."),
			threshold("rate_on", 0x10, 20_000, "segments per second", "With more SYNs in a second than this the stage becomes active; zero: SYNs do not count."),
			threshold("rate_off", 0x14, 10_000, "segments per second", "With more SYNs in a second than this it stays so."),
			timeout("calm", 0x18, 5_000, "How long both must be below before it ends."),
			timeout("period", 0x1c, 64_000, "Life of a secret; a cookie is valid in its own period and the next."),
			threshold("source_rate", 0x20, 0, "segments per second", "SYNs a source address may send; zero: no limit."),
			threshold("source_burst", 0x24, 100, "segments", "SYNs it may send at once."),
			{Name: "epoch", Offset: 0x30, Access: RO, Class: Pointer, Doc: "Number of the secret in force."},
			{Name: "epoch_begin", Offset: 0x34, Access: RO, Class: Pointer, Unit: "ticks", Doc: "Tick at which it came into force."},
			{Name: "last_sent", Offset: 0x38, Access: RO, Class: Pointer, Unit: "ticks", Doc: "Tick of the last cookie."},
			{Name: "calm_since", Offset: 0x3c, Access: RO, Class: Pointer, Unit: "ticks", Doc: "While active: last tick at which there was pressure enough to stay so."},
			{Name: "window_begin", Offset: 0x40, Access: RO, Class: Pointer, Unit: "ticks", Doc: "Begin of the second in which SYNs are counted."},
			{Name: "window_syns", Offset: 0x44, Access: RO, Class: Status, Max: number, Unit: "segments", Doc: "SYNs in it so far."},
			{Name: "rate", Offset: 0x48, Access: RO, Class: Status, Max: number, Unit: "segments per second", Doc: "SYNs in the second before."},
			{Name: "key", Offset: 0x50, Count: 4, Access: WO, Class: Key, Doc: "Key of this stage: the secret of an epoch is a one-way function of it and of the epoch's number. A store makes every cookie invalid."},
		}, counters(0x100,
			count{"cookie_sent", "segments", "SYNs answered with a cookie."},
			count{"cookie_valid", "connections", "Cookies that came back and took a page."},
			count{"cookie_bad", "segments", "Segments for a listener, without a page, whose acknowledgement is no cookie of ours; dropped while cookies are in force."},
			count{"cookie_no_page", "connections", "Valid cookies for which there was no page or no CAM place, or that came while no connections are accepted; answered with RST."},
			count{"source_limited", "segments", "SYNs beyond their source's rate."},
			count{"switched_on", "", "Times the stage became active."},
			count{"switched_off", "", "Times it ended."},
		)),
	}
}

func hostInterface() Block {
	return Block{
		Name: "hostif", Type: 0x1c, Version: 1, Offset: 0x30000, Stride: 0x1000,
		Doc: "Host interface: interrupt causes and DMA errors.",
		Registers: join([]Register{
			{Name: "control", Offset: 0x00, Access: RW, Class: Control, Fields: []Field{f("enable", 0, 1, "The card may access host memory.")}, Doc: "Operation of the interface."},
			{Name: "status", Offset: 0x04, Access: RO, Class: Status, Fields: []Field{f("busy", 0, 1, "DMA is going on.")}, Doc: "State of the interface."},
			{Name: "cause", Offset: 0x08, Access: W1C, Class: Status,
				Fields: []Field{f("link", 0, 1, "A link changed."), f("head_low", 1, 1, "Free head buffers fell below the watermark."), f("pages_low", 2, 1, "Free pages fell below the watermark."), f("dma", 3, 1, "A DMA access failed."), f("sensor", 4, 1, "A sensor alarm was set."), f("defence", 5, 1, "The SYN defence switched on or off.")},
				Doc:    "Why the event vector was raised beside its ring."},
			{Name: "events", Offset: 0x0c, Access: RW, Class: Control,
				Fields: []Field{{Name: "established", Lsb: 0, Width: 1, Doc: "A client completed its handshake."}, {Name: "first_byte", Lsb: 1, Width: 1, Doc: "A server sent its first payload."}, {Name: "heads", Lsb: 2, Width: 1, Doc: "A spliced event brings the begin of the head in the ring's buffers."}},
				Doc:    "What the event ring tells beside opened, spliced, closed and profile."},
		}, counters(0x100,
			count{"dma_errors", "", "DMA accesses that the host's memory map refused."},
			count{"interrupts", "", "Interrupts raised."},
		)),
	}
}

func ring() Block {
	return Block{
		Name: "ring", Type: 0x1d, Version: 1, Offset: 0x31000, Stride: 0x100, Instances: []string{"exception", "event", "completion", "inject", "command"},
		Doc: "A descriptor ring in host memory. The card produces exception, event and completion; the host produces inject and command. Indexes run freely modulo 2^32; the slot is the index modulo the number of entries.",
		Registers: join([]Register{
			{Name: "control", Offset: 0x00, Access: RW, Class: Control, Fields: []Field{f("enable", 0, 1, "The ring runs.")}, Doc: "Operation of the ring."},
			{Name: "status", Offset: 0x04, Access: RO, Class: Status, Fields: []Field{f("running", 0, 1, "The ring runs."), f("error", 1, 1, "A DMA access failed; the ring stopped.")}, Doc: "State of the ring."},
			{Name: "iova", Offset: 0x08, Wide: true, Access: RW, Class: Pointer, Unit: "bytes", Doc: "IOVA of slot 0, a multiple of 64."},
			{Name: "entries", Offset: 0x10, Access: RW, Class: Control, Unit: "descriptors", Fields: []Field{f("count", 0, 17, "A power of two, at most 65,536.")}, Doc: "Size of the ring."},
			{Name: "buffer_bytes", Offset: 0x14, Access: RW, Class: Control, Unit: "bytes", Fields: []Field{f("count", 0, 17, "A multiple of 64, at most 65,536.")}, Doc: "Exception ring: size of the frame buffer of a slot. Event ring: size of the buffer for the begin of a head; zero: there are none."},
			{Name: "buffers", Offset: 0x18, Wide: true, Access: RW, Class: Pointer, Unit: "bytes", Doc: "Exception and event ring: IOVA of the buffer of slot 0; slot i's follows at i × buffer_bytes."},
			{Name: "producer", Offset: 0x20, Access: RW, Class: Pointer, Doc: "Index of the next descriptor. The producer's doorbell; stores are ignored where the card produces."},
			{Name: "consumer", Offset: 0x24, Access: RW, Class: Pointer, Doc: "Index of the next descriptor to be consumed. The consumer's doorbell; stores are ignored where the card consumes."},
			{Name: "writeback", Offset: 0x28, Wide: true, Access: RW, Class: Pointer, Unit: "bytes", Doc: "IOVA of a word the card writes its own index to, a multiple of 64; zero: none."},
			{Name: "sequence", Offset: 0x30, Access: RO, Class: Pointer, Doc: "Sequence number of the next descriptor, the lost ones counted."},
		}, counters(0x40,
			count{"descriptors", "", "Descriptors moved."},
			count{"lost", "", "Descriptors not written because the ring was full or stopped. For frames about which no connection waits the exception ring is full while less than a quarter is free, for requests that can only be refused while less than an eighth is."},
			count{"truncated", "", "Frames that did not fit their buffer."},
		)),
	}
}
