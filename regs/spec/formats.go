package spec

func w(name string, index uint32, unit, doc string, fields ...Field) Word {
	return Word{Name: name, Index: index, Unit: unit, Fields: fields, Doc: doc}
}

func wn(name string, index, count uint32, unit, doc string) Word {
	return Word{Name: name, Index: index, Count: count, Unit: unit, Doc: doc}
}

func handle(index uint32, doc string) Word {
	return w("handle", index, "", doc, f("n", 0, 20, "Address n."), f("generation", 20, 12, "Generation of the page."))
}

func kind(lsb uint8) Field {
	return short(enum("kind", lsb, 3, "Kind of key or address.", "none", "ipv4", "ipv6", "local"), "kind")
}

func method(lsb uint8) Field {
	return short(enum("method", lsb, 3, "Server leg.", "nat", "fullnat", "tun", "dr"), "method")
}

// state names the states of a page, in the order of the state table.
func state(lsb uint8, doc string) Field {
	return short(enum("state", lsb, 3, doc, "free", "syn_rcvd", "wait_head", "server_syn", "spliced", "closing", "quarantine", "stateless"), "state")
}

func formats() []Format {
	return []Format{
		page(), {Name: "head", Bytes: 8192, Doc: "Request bytes from the client's first, in the order of the stream.", Words: []Word{wn("data", 0, 2048, "", "Bytes of the stream, byte 0 in the lowest bits of word 0.")}},
		camWord(), urlNode(), urlText(), urlCondition(), urlNet(), rule(), ruleCounter(), slot(), listener(), service(), group(), groupState(), server(), serverState(),
		nextHop(), address(), localPort(), listEntry(), sourceBucket(),
		exceptionDescriptor(), eventDescriptor(), completionDescriptor(), injectDescriptor(), commandDescriptor(),
	}
}

func page() Format {
	leg := func(set string, at uint32) []Word {
		return []Word{
			w(set+"_index", at, "", "Who is at the server end.", f("server", 0, 16, "Server index."), f("local_address", 16, 13, "Local-address index with FULLNAT."),
				enum("answers", 29, 3, "How the server's answers are known. client: they go from the server's address to the client. local: they go to the local address. vip: they go from the VIP to the client, of a server behind a tunnel.", "client", "local", "vip")),
			w(set+"_local", at+1, "", "The connection as the server sees it.", f("port", 0, 16, "Source port the server sees."), f("mss", 16, 16, "MSS the server announced.")),
			w(set+"_delta_client", at+2, "", "Added to seq from client to server, taken from ack from server to client."),
			w(set+"_delta_server", at+3, "", "a = a0 − a1: added to seq from server to client, taken from ack from client to server."),
			w(set+"_timestamp_client", at+4, "", "Added to TSval from client to server, taken from TSecr from server to client."),
			w(set+"_timestamp_server", at+5, "", "Added to TSval from server to client, taken from TSecr from client to server."),
			w(set+"_checksum", at+6, "", "Ready one's complement differences of the TCP checksum: addresses, ports and both deltas.", f("client", 0, 16, "From client to server."), f("server", 16, 16, "From server to client.")),
			w(set+"_scale", at+7, "", "Window shifts (two's complement, left is positive) and what the leg carries.",
				f("client", 0, 5, "Shift of the window field from client to server."), f("server", 5, 5, "Shift of the window field from server to client."),
				f("sack", 10, 1, "Both ends permit SACK."), f("timestamps", 11, 1, "Both ends send timestamps."), f("armed", 12, 1, "Packets are translated."), f("checksum_ready", 13, 1, "The differences are valid."), f("ecn", 14, 1, "Both ends do ECN."), f("datagrams", 15, 1, "The connection is one of datagrams."),
				f("server_wscale", 16, 4, "Shift the server announced."), f("vlan", 20, 12, "VLAN id of the server-side key; zero: untagged.")),
			w(set+"_seq_client", at+8, "", "Highest end of sequence from the client, in the client's numbers."),
			w(set+"_ack_client", at+9, "", "Highest acknowledgement from the client, in the client's numbers."),
			w(set+"_seq_server", at+10, "", "Highest end of sequence from the server, in the client's numbers."),
			w(set+"_ack_server", at+11, "", "Highest acknowledgement from the server, in the client's numbers. Before the splice, and where the card answers, the right edge of the window that the client was promised."),
			w(set+"_server_isn", at+12, "", "a1: the server's initial sequence number."),
			w(set+"_isn", at+13, "", "Our initial sequence number toward the server: the client's, less the bytes that the host inserted."),
			w(set+"_rto", at+14, "ticks", "Retransmission of what the card sent itself.", f("interval", 0, 16, "Time-out in force."), f("sent", 16, 16, "Bytes of the head buffer sent so far; in WAIT_HEAD, handshake bytes of a ClientHello in the records searched so far; in SERVER_SYN, answers of the server that belong to an older connection.")),
			w(set+"_window", at+15, "bytes", "Window fields as segments carry them: the last ones seen while bytes are held, then the largest, which bound what an end takes.", f("client", 0, 16, "From the client."), f("server", 16, 16, "From the server.")),
		}
	}
	words := []Word{
		w("control", 0, "", "What a lookup needs first.",
			f("valid", 0, 1, "The page is in use."), state(1, "State of the connection."), kind(4),
			f("held", 7, 1, "Bytes below the held boundary are ours to deliver."), f("deadline", 8, 1, "The deadline word counts."), f("leg_b", 9, 1, "Leg set B is in use."),
			f("port", 10, 1, "Port the client is behind."), f("waiting_host", 11, 1, "The host decides about this connection."), f("head", 12, 1, "A head buffer is taken."),
			f("server_port", 13, 1, "Port the server is behind."), f("host_reason", 14, 5, "Why the host decides: exception.reason."),
			f("reply", 19, 1, "The card itself is the server: the head buffer holds its answer."),
			f("generation", 20, 12, "Counts the uses of the page.")),
		w("ports", 1, "", "Ports the client knows.", f("client", 0, 16, "The client's."), f("vip", 16, 16, "The VIP's.")),
		w("index", 2, "", "Stable indexes.", f("vip", 0, 16, "VIP index."), f("service", 16, 16, "Service index.")),
		w("client_link", 3, "", "Client leg: link and options.", f("vlan", 0, 12, "VLAN id."), f("tagged", 12, 1, "Frames carry a tag."), f("answers", 13, 3, "Answers sent to segments that are out of place since the last scan."),
			f("fin_client", 16, 1, "FIN from the client seen."), f("fin_server", 17, 1, "FIN from the server seen."), f("fin_client_acked", 18, 1, "The server acknowledged it."), f("fin_server_acked", 19, 1, "The client acknowledged it."),
			f("sack", 20, 1, "SACK promised to the client."), f("timestamps", 21, 1, "Timestamps promised to the client."), f("wscale", 22, 1, "Window scale promised to the client."), f("ecn", 23, 1, "ECN promised to the client."), f("client_wscale", 24, 4, "Shift of the client's window fields."), f("cookie", 28, 1, "The client proved itself with a cookie: its SYN is known as far as the cookie kept it."),
			f("congestion", 29, 1, "A CE mark came before the splice: our ACKs tell the client until it says that it knows."),
			f("last_request", 30, 1, "boundary_client is the end of the only request: the client's bytes behind it go nowhere."),
			f("passed", 31, 1, "The connection was opened toward its server at its SYN or first datagram. State syn_rcvd: the SYN went on. spliced: the client acknowledged, or a datagram. closing: a FIN or RST went by. wait_head: no connection, but a template, which says where those of a client go.")),
		w("client_mac_lo", 4, "", "MAC address the client's SYN came from: replies go back the same way."),
		w("client_mac_hi", 5, "", "Upper bits.", f("address", 0, 16, "Bits 32–47."), f("mss", 16, 16, "MSS promised to the client.")),
		w("last_seen", 6, "ticks", "Timer mark: tick of the last packet."),
		w("packets_client", 7, "packets", "Packets from the client, as wire segments."),
		w("packets_server", 8, "packets", "Packets from the server, as wire segments."),
		w("bytes_client", 9, "bytes", "TCP payload from the client, low word."),
		w("bytes_server", 10, "bytes", "TCP payload from the server, low word."),
		w("held_boundary", 11, "", "H, in client sequence space: what the client is acknowledged before the splice, a FIN included. After it, what lies below is ours to deliver."),
		wn("client_address", 12, 4, "", "The client's address."),
	}
	words = append(words, leg("a", 16)...)
	words = append(words, leg("b", 32)...)
	words = append(words,
		w("boundary_client", 48, "", "Client sequence number from which leg set B is in force, client to server; with client_link.last_request the end of the only request. Passed: the client's stream was last altered before it."),
		w("boundary_server", 49, "", "Sequence number in the client's view from which leg set B is in force, server to client. Passed: the server's stream was last altered before it, in the client's numbers as they were without adjustments."),
		w("fin_client", 50, "", "Sequence number after the client's FIN."),
		w("fin_server", 51, "", "Sequence number after the server's FIN, in the client's numbers."),
		w("deadline", 52, "ticks", "The one next deadline: retransmission or end of the state."),
		w("client_isn", 53, "", "The client's initial sequence number."),
		w("isn", 54, "", "a0: our initial sequence number toward the client."),
		w("head", 55, "", "Head buffer.", f("buffer", 0, 16, "Index of the buffer."), f("bytes", 16, 16, "Bytes stored.")),
		w("rule", 56, "", "Rule that matched, plus one; zero: the service's default."),
		w("choice", 57, "", "How the server was chosen.", f("group", 0, 16, "Group index."), f("generation", 16, 16, "Generation of the tables at the lookup.")),
		w("offer", 58, "", "What the client's SYN offered.", f("mss", 0, 16, "MSS."), f("window", 16, 16, "Window, unscaled.")),
		w("options", 59, "", "Options of the client's SYN and what was promised.",
			f("client_wscale", 0, 4, "Shift the client offered."), f("promised_wscale", 4, 4, "Shift promised to the client."),
			f("wscale_offered", 8, 1, "Window scale offered."), f("sack_offered", 9, 1, "SACK offered."), f("timestamps_offered", 10, 1, "Timestamps offered."), f("ecn_offered", 11, 1, "ECN offered."),
			f("retries", 12, 4, "Times the pending segment was sent again."), f("head_scan", 16, 14, "Bytes of the head already searched for its end; where the host gathers, bytes that it was given and the buffer keeps."), f("tries", 30, 2, "Servers tried in vain.")),
		w("client_timestamp", 60, "", "Latest TSval of the client before the splice and while bytes are held."),
		w("timestamp_base", 61, "", "Our TSval toward the client, that of the SYN-ACK up to the splice: an echo of it then is one of the server's SYN-ACK. From the splice on the latest that the client was sent while bytes are held."),
		w("opened", 62, "ticks", "Tick of the present state's begin; in CLOSING that of SPLICED."),
		w("bytes_high", 63, "bytes", "Payload counters, bits 32–47.", f("client", 0, 16, "From the client."), f("server", 16, 16, "From the server.")),
	)
	return Format{Name: "page", Bytes: 256, Words: words,
		Doc: "Everything about one connection. The common words and leg set A lie in bytes 0–127, leg set B in 128–191, what a translated packet does not touch in 192–255. " +
			"A passed connection has one leg only; where its payload goes by way of the host, b_delta_client and b_delta_server say how many bytes longer the streams of its ends are before boundary_client and boundary_server, b_seq_client and b_seq_server from there on. b_local is not zero where its local port is the host's, which no list has."}
}

func camWord() Format {
	return Format{Name: "cam_word", Bytes: 32,
		Doc: "One 144-bit CAM word. An IPv6 key takes two adjacent words from an even slot: the second holds the upper 96 address bits.",
		Words: []Word{
			w("control", 0, "", "Key, first part.", f("valid", 0, 1, "The word is in use."), kind(1), f("second", 4, 1, "Second word of an IPv6 key."),
				f("leg_b", 5, 1, "Result: leg set B."), f("protocol", 8, 8, "IP protocol."), f("vlan", 16, 12, "VLAN id; zero: untagged.")),
			handle(1, "Result."),
			w("ports", 2, "", "Key, second part.", f("port", 0, 16, "Client port, or local port with FULLNAT."), f("destination", 16, 16, "Client side, and server side with index.vip: port of the VIP. Server side: zero, or with server.tunnel.any_port the server's port.")),
			w("index", 3, "", "Key, third part.", f("index", 0, 16, "Client side: VIP index. Server side: server index."), f("vip", 16, 1, "Server side: index is that of the VIP, from which a server behind a tunnel answers.")),
			wn("address", 4, 3, "", "Client address: bits 0–31 in the first word (the rest zero), bits 32–127 in the second; or the local-address index."),
			wn("reserved", 7, 1, "", "Zero."),
		}}
}

func urlNode() Format {
	return Format{Name: "url_node", Bytes: 32,
		Doc: "State of an automaton, with the way that leads into it. The URL table holds these, and entries of the formats url_text, url_condition and url_net. " +
			"A service's root is the state before a host; its way in is a whole host, in lower case and without port. The state behind a host is at once the one before a path, whose ways are segments: a label begins with the segment and may go on with the only ones that can follow, up to a slash or the path's end. " +
			"The ways out of a state lie in a block of 2^log2 nodes (entries; pairs of them where wide) by the hash of the host or the segment: from (hash >> shift) mod 2^log2 on, around the end, up to a node that is not used, at most 16. " +
			"The hash is over the bytes as little-endian words of 64 bits, the last filled up with zeros: h begins as the number of bytes xor 0x9e3779b97f4a7c15; for each word, h becomes the high xor the low half of (h xor word) × 0xd6e8feb86659fd93.",
		Words: []Word{
			w("control", 0, "", "Shape.", f("used", 0, 1, "The node is one."), f("far", 1, 1, "The label lies in url_text entries, from the one on whose index is in its first word."), f("alias", 2, 1, "The label leads to the state of the node otherwise.node."),
				f("children", 3, 1, "There is a block of ways out."), f("final", 4, 1, "What follows of the path does not matter."),
				enum("otherwise", 5, 2, "Where a segment leads that fits no label. state: to otherwise.node. again: to where it leads from there. suffix: otherwise.node tells by its end.", "none", "state", "again", "suffix"),
				f("vacant", 7, 1, "A node of a block that no way needs; it is not used."),
				f("label_bytes", 16, 13, "Length of the label. It begins in this node, and goes on in the second entry where nodes are wide.")),
			w("children", 1, "", "Block of the ways out.", f("first", 0, 20, "Index of its first entry; even where wide."), f("log2", 20, 5, "Logarithm of the number of nodes."), f("shift", 25, 6, "Bits of the hash that are passed over."), f("wide", 31, 1, "Nodes take two entries.")),
			w("take", 2, "", "Rules that take a request whose path ends here, in the order of precedence.", f("index", 0, 22, "Index of the rule; with several, of the first word of a list in the URL table."), f("count", 22, 5, "Number of rules, at most 16."), f("sure", 30, 1, "The rule asks for nothing more; its entry is not looked at."), f("host", 31, 1, "The host decides. In a list this and sure are in each word, and the index below them.")),
			w("otherwise", 3, "", "Another node.", f("node", 0, 20, "Index.")),
			w("next", 4, "", "Before a path: the state before the path that is tried next, that of the longest wildcard that takes the host too, at last of every host. In a node that otherwise suffix leads to: bit i − 1 is set where there are labels of i bytes, or, before a host, of i labels of a name; the longest that fits counts.", f("node", 0, 20, "Index."), f("valid", 31, 1, "There is one.")),
			wn("label", 5, 3, "", "Bytes of the label, byte 0 in the lowest bits; behind its end zeros."),
		}}
}

func urlText() Format {
	return Format{Name: "url_text", Bytes: 32, Doc: "Bytes of a label or of a condition, which may go on in the entries behind; or a list of rules.", Words: []Word{wn("data", 0, 8, "", "Byte 0 in the lowest bits; behind the end zeros. In a list: words laid out as url_node.take, whose count means nothing.")}}
}

func urlCondition() Format {
	return Format{Name: "url_condition", Bytes: 32, Doc: "A test of a request, in the URL table. A rule's conditions are adjacent.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The entry is a condition; any other is not fulfilled."),
			enum("subject", 1, 3, "What is looked at: the method; a field, whose name is compared without regard to case; a parameter of the query or a cookie, whose name and value are compared percent-decoded and as they are; the client's address; a protocol that a ClientHello offers.", "method", "header", "query", "cookie", "source", "alpn"),
			enum("test", 4, 2, "How the value is compared. Of several with the name one has to pass. A method has to be among those that the value lists with commas.", "equal", "prefix", "present"),
			f("far", 6, 1, "The text lies in url_text entries.")),
		w("length", 1, "bytes", "Lengths.", f("name", 0, 16, "Of the name. Source: number of url_net entries, at most 32."), f("value", 16, 16, "Of the value.")),
		w("at", 2, "", "Where the rest is.", f("node", 0, 20, "Index of the first url_text or url_net entry.")),
		wn("text", 3, 5, "", "Name and value behind each other, byte 0 in the lowest bits."),
	}}
}

func urlNet() Format {
	return Format{Name: "url_net", Bytes: 32, Doc: "A network that clients may be of, in the URL table.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The entry is in force."), kind(1), f("bits", 8, 8, "Length of the prefix.")),
		wn("address", 1, 4, "", "Address, as pages hold it."),
		wn("reserved", 5, 3, "", "Zero."),
	}}
}

func rule() Format {
	return Format{Name: "rule", Bytes: 16, Doc: "Where a match leads.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The rule is in force."), f("host", 1, 1, "Only the host can test whether the rule takes a request that it may take."), f("answer", 2, 1, "The host answers; group means nothing."), f("group", 16, 16, "Group index.")),
		w("service", 1, "", "Owner.", f("service", 0, 16, "Service index.")),
		w("order", 2, "", "Place in the order of precedence, for display."),
		w("conditions", 3, "", "What the request has to fulfil beside host and path.", f("first", 0, 20, "Index of the first url_condition entry in the URL table."), f("count", 20, 4, "Number of conditions, at most 8.")),
	}}
}

func ruleCounter() Format {
	return Format{Name: "rule_counter", Bytes: 8, Doc: "Hits of a rule.", Words: []Word{w("hits_lo", 0, "", "Low word."), w("hits_hi", 1, "", "High word.")}}
}

func slot() Format {
	return Format{Name: "slot", Bytes: 4, Doc: "One place of a slot area.", Words: []Word{
		w("slot", 0, "", "Server.", f("server", 0, 16, "Server index."), f("valid", 16, 1, "The slot names a server."), f("weight", 17, 15, "Weight of the server where servers are compared; zero counts as one."))}}
}

func listener() Format {
	return Format{Name: "listener", Bytes: 16, Doc: "Key: VIP index, port, protocol. Result: service.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The entry is in force."), f("protocol", 8, 8, "IP protocol."), f("port", 16, 16, "Port.")),
		w("index", 1, "", "Indexes.", f("vip", 0, 16, "VIP index."), f("service", 16, 16, "Service index.")),
		wn("reserved", 2, 2, "", "Zero."),
	}}
}

func service() Format {
	return Format{Name: "service", Bytes: 64, Doc: "What a listener does.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The service is in force."), enum("mode", 1, 3, "How connections are handled.", "splice", "nat", "fullnat", "tun", "dr"),
			enum("protocol", 4, 3, "How the request is read.", "http", "tls", "tcp", "udp"), enum("isn", 8, 1, "How a0 is chosen.", "keyed", "address"),
			f("has_default", 9, 1, "default_group is valid."), enum("defence", 10, 2, "SYN defence: never, under pressure, or always.", "off", "auto", "always"), f("idle_silent", 12, 1, "The idle time-out sends no RST."),
			f("rewrite", 13, 1, "The host alters what the server is sent first: it connects."), f("server_first", 14, 1, "The default group's server is connected when the client's handshake ends."), f("has_h2c", 15, 1, "h2c.group is valid."),
			f("one_packet", 16, 1, "Every datagram chooses its server anew; no page is taken."), f("sloppy", 17, 1, "A segment without SYN opens a connection too."), f("module", 18, 1, "Payload goes by way of the host."),
			f("expire_quiescent", 19, 1, "A template whose server has no slot is not used."), f("expire_nodest", 20, 1, "A connection whose server is gone is reset."), f("keep_server", 21, 1, "A new SYN on a page that is closing goes to the same server."), f("any_port", 22, 1, "A template holds for all ports of the VIP.")),
		w("url_root", 1, "", "Node index of the root of the host automaton."),
		w("default", 2, "", "Where a request goes that no rule takes.", f("group", 0, 16, "Group index.")),
		w("promise_mss", 3, "bytes", "MSS promised to clients.", f("ipv4", 0, 16, "Over IPv4."), f("ipv6", 16, 16, "Over IPv6.")),
		w("promise", 4, "", "Other options promised to clients that offer them.", f("wscale", 0, 4, "Shift."), f("wscale_on", 4, 1, "Window scale is promised."), f("sack", 5, 1, "SACK is promised."), f("timestamps", 6, 1, "Timestamps are promised."), f("ecn", 7, 1, "ECN is promised.")),
		w("idle", 5, "ticks", "Idle time-out; zero: the timer's register."),
		w("wait_head", 6, "ticks", "Time-out of WAIT_HEAD; zero: the timer's register."),
		w("fallback", 7, "ticks", "A client that sends nothing for so long after its handshake goes to the default group; zero: never."),
		w("h2c", 8, "", "Where HTTP/2 without TLS goes, known by its preface.", f("group", 0, 16, "Group index.")),
		w("persistence", 9, "ticks", "A template lives so long after the last connection that it led; zero: there are none."),
		w("persistence_net", 10, "", "Bits of a client's address that a template goes by.", f("ipv4", 0, 6, "Of an IPv4 address."), f("ipv6", 8, 8, "Of an IPv6 address.")),
		w("source", 11, "", "Networks that clients have to be of.", f("first", 0, 20, "Index of the first url_net entry in the URL table."), f("count", 20, 6, "Number of them, at most 32; zero: every client.")),
		w("otherwise", 12, "", "Who is asked where the client is of none of them. Of one listener at most four services are.", f("service", 0, 16, "Service index."), f("valid", 16, 1, "There is one.")),
		wn("reserved", 13, 3, "", "Zero."),
	}}
}

func group() Format {
	return Format{Name: "group", Bytes: 16, Doc: "A set of servers.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The group is in force."), enum("means", 1, 3, "How a slot is chosen.", "walk", "hash", "compare"), method(4),
			enum("compare", 7, 4, "What the servers of the slots are compared by, where that is how. lc: 256 × active + inactive. wlc: that by weight. sed: active + 1 by weight. nq: an idle one, else as sed. fo: the greatest weight. ovf: the greatest weight of those with fewer active connections than weight, else as fo. p2c: the fewer active of two. twos: as wlc of two. The two are the slots that the low and the high half of a random number, modulo the number of slots, name. Of equal servers the first slot's is taken.", "lc", "wlc", "sed", "nq", "fo", "ovf", "p2c", "twos"),
			enum("hash_key", 11, 2, "What is hashed. The hash is SipHash-2-4 of four little-endian words of 64 bits: low and high half of the address as a number, the source port or zero, zero. The slot is the hash modulo the number of slots.", "source", "source_port", "destination"), f("fallback", 13, 1, "Hash: where the slot's server takes no connection, the slots behind it are tried.")),
		w("seed_lo", 1, "", "Key of the hash, low word; its upper 64 bits are zero."), w("seed_hi", 2, "", "High word."),
		wn("reserved", 3, 1, "", "Zero."),
	}}
}

func groupState() Format {
	return Format{Name: "group_state", Bytes: 16, Doc: "Written by the host one word at a time; the cursor by the card.", Words: []Word{
		w("selector", 0, "", "Slot area in force.", f("area", 0, 1, "Area number."), f("count_a", 1, 15, "Slots of area 0."), f("count_b", 16, 15, "Slots of area 1.")),
		w("cursor", 1, "", "Slot the next connection takes."),
		w("picked", 2, "", "Connections given out."),
		wn("reserved", 3, 1, "", "Zero."),
	}}
}

func server() Format {
	return Format{Name: "server", Bytes: 32, Doc: "A server: address, port and protocol are the key of the exact match.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The entry is in use."), f("closed", 1, 1, "No new connections."), kind(2), method(5), f("protocol", 8, 8, "IP protocol."), f("port", 16, 16, "Port.")),
		w("route", 1, "", "How it is reached.", f("next_hop", 0, 16, "Next-hop index."), f("local_address", 16, 16, "Local-address index with FULLNAT.")),
		w("profile", 2, "", "What its SYN-ACKs keep.", f("mss", 0, 16, "MSS."), f("wscale", 16, 4, "Shift."), f("wscale_on", 20, 1, "Window scale."), f("sack", 21, 1, "SACK."), f("timestamps", 22, 1, "Timestamps."), f("known", 23, 1, "The profile is known."), f("ecn", 24, 1, "ECN.")),
		w("tunnel", 3, "", "How frames for a server behind a tunnel are wrapped.", enum("type", 0, 3, "Kind of tunnel. dscp: none, the DSCP tells the server which VIP is meant.", "ipip", "gre", "gue", "dscp"), enum("checksum", 3, 2, "Outer checksum of gre and gue. remote: remote checksum offload of gue.", "none", "full", "remote"), f("dscp", 5, 6, "DSCP with dscp."), f("nat64", 11, 1, "An IPv4 client is known to an IPv6 server by 64:ff9b::/96 (RFC 6052)."), f("any_port", 12, 1, "The destination port is that of the client's packet."), f("return", 13, 1, "Replies come back through the card, plain."), f("port", 16, 16, "Destination port of gue.")),
		wn("address", 4, 4, "", "Address."),
	}}
}

func serverState() Format {
	return Format{Name: "server_state", Bytes: 64, Doc: "Counters of a server; the host writes limits and the place of the local-port list.", Words: []Word{
		w("use_count", 0, "", "Pages that name the server, those in quarantine and templates included."),
		w("active", 1, "", "Connections in SERVER_SYN, SPLICED or CLOSING; of those passed, in SPLICED."),
		w("connections_lo", 2, "", "Connections ever, low word."), w("connections_hi", 3, "", "High word."),
		w("failed", 4, "", "Connections it refused or did not answer."),
		w("upper", 5, "", "So many connections, active or not, are enough: the server is overloaded; zero: no limit."),
		w("lower", 6, "", "With fewer it is not any more; zero: three quarters of upper."),
		w("flags", 7, "", "What the card knows.", f("overloaded", 0, 1, "It takes no new connection.")),
		w("ports_first", 8, "", "First entry of the local-port list in the memory."),
		w("ports_size", 9, "", "Entries of the list."),
		w("ports_head", 10, "", "Place in the list of the port that is handed out next."),
		w("ports_tail", 11, "", "Place in the list where the next one is put back."),
		w("ports_free", 12, "", "Ports in the list, those that rest included."),
		w("ports_none", 13, "", "Connections for which there was no port."),
		w("templates", 14, "", "Templates that name the server."),
		wn("reserved", 15, 1, "", "Zero."),
	}}
}

func nextHop() Format {
	return Format{Name: "next_hop", Bytes: 16, Doc: "Where frames of a server leg go.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The entry is in use."), f("resolved", 1, 1, "The MAC address is known."), f("port", 2, 1, "Port."), f("tagged", 3, 1, "Frames carry a tag."), f("vlan", 16, 12, "VLAN id.")),
		w("mac_lo", 1, "", "MAC address, bits 0–31."),
		w("mac_hi", 2, "", "MAC address and MTU.", f("address", 0, 16, "Bits 32–47."), f("mtu", 16, 16, "MTU of the path; zero: the port's.")),
		w("use_count", 3, "", "Zero; next hops are counted by the host through the servers that name them."),
	}}
}

func address() Format {
	return Format{Name: "address", Bytes: 32, Doc: "Exact match of an address; the slot is the index.", Words: []Word{
		w("control", 0, "", "Shape.", f("valid", 0, 1, "The entry is in use."), kind(1)),
		wn("reserved", 1, 3, "", "Zero."),
		wn("address", 4, 4, "", "Address."),
	}}
}

func localPort() Format {
	return Format{Name: "local_port", Bytes: 16, Doc: "Entry of a local-port list. A port rests for timer.port_rest, unless its new connection begins above all that the old one sent.", Words: []Word{
		w("number", 0, "", "Port.", f("port", 0, 16, "Port number."), f("local_address", 16, 16, "Local-address index.")),
		w("freed", 1, "ticks", "When it was put back; zero: never used."),
		w("seq", 2, "", "End of sequence that the server was sent last."),
		w("timestamp", 3, "", "TSval that the server was sent last.")}}
}

func listEntry() Format {
	return Format{Name: "list_entry", Bytes: 4, Doc: "Entry of a list of addresses or buffers.", Words: []Word{handle(0, "Address n (or buffer index) and, in the quarantine list, its generation.")}}
}

func sourceBucket() Format {
	return Format{Name: "source_bucket", Bytes: 8, Doc: "Token bucket of the client addresses that share a hash.", Words: []Word{
		w("tick", 0, "ticks", "When it was last looked at."), w("spent", 1, "", "SYNs let through and not made up for by then, in thousandths."),
	}}
}

// status names the answers to a command.
func status() Field {
	return short(enum("status", 8, 8, "Completion: how the command ended.", "ok", "argument", "not_supported", "stale_handle", "no_page", "key_exists", "no_place", "not_found", "state", "dma"), "status")
}

// descriptor starts every ring format: the words all five share.
func descriptor(types Field, rest ...Word) []Word {
	return append([]Word{
		w("control", 0, "", "Written last by a producing card.", f("phase", 0, 1, "Toggles with every turn of the ring, first one."), types, status(), f("port", 16, 1, "Port number.")),
		handle(1, "Connection the descriptor is about; zero with no generation: none."),
		w("length", 2, "bytes", "Bytes at iova."),
		w("sequence", 3, "", "Counts all descriptors of the ring, the lost ones included."),
		w("iova_lo", 4, "", "Where the bytes are, low word."), w("iova_hi", 5, "", "High word."),
		w("tick", 6, "ticks", "When it was written."),
	}, rest...)
}

func exceptionDescriptor() Format {
	return Format{Name: "exception", Bytes: 64, Doc: "A frame for the host.", Words: descriptor(
		enum("type", 1, 7, "Kind of descriptor.", "none", "frame"),
		w("reason", 7, "", "Why the host sees it.", enum("reason", 0, 8, "Reason.", "none", "not_ip", "icmp", "fragment", "option", "protocol", "vlan", "ttl", "no_match", "next_hop", "bad_request", "no_rule", "no_server", "head_too_large", "unclassified", "server_failed", "key_exists", "too_big",
			"rewrite", "rule_host", "answer", "head_more", "held_more", "head_timeout", "not_http", "not_tls", "h2c", "bad_hello", "module", "fragmented"),
			f("side", 8, 1, "Zero: client side, one: server side."), state(12, "State of the page."), f("miss_vip", 16, 1, "The destination is a VIP.")),
		w("index", 8, "", "Indexes where known.", f("service", 0, 16, "Service index."), f("server", 16, 16, "Server index.")),
		w("back", 9, "", "fragmented: cookie of the descriptor that injected it."),
		w("mtu", 10, "bytes", "too_big: the longest packet of its sender that goes on, what the card adds taken off."),
		wn("reserved", 11, 5, "", "Zero."),
	)}
}

func eventDescriptor() Format {
	return Format{Name: "event", Bytes: 64, Doc: "Something happened to a connection.", Words: descriptor(
		enum("type", 1, 7, "Kind of event.", "none", "opened", "spliced", "closed", "profile", "established", "first_byte"),
		w("reason", 7, "", "How it ended.", enum("reason", 0, 8, "Reason.", "none", "fin", "rst", "host", "expired_syn_rcvd", "expired_wait_head", "expired_server_syn", "expired_idle", "expired_closing",
			"abort_syn_ack", "abort_server_syn", "abort_held", "abort_refused", "abort_profile", "abort_key_exists", "abort_client_gone", "abort_no_server", "no_cam_place")),
		w("index", 8, "", "Indexes.", f("service", 0, 16, "Service index."), f("server", 16, 16, "Server index.")),
		w("rule", 9, "", "Rule that matched, plus one; zero: the default."),
		w("packets_client", 10, "packets", "From the client."), w("packets_server", 11, "packets", "From the server."),
		w("bytes_client", 12, "bytes", "Payload from the client, low word."), w("bytes_server", 13, "bytes", "Payload from the server, low word."),
		w("bytes_high", 14, "bytes", "Bits 32–47 of both.", f("client", 0, 16, "From the client."), f("server", 16, 16, "From the server.")),
		w("delta", 15, "", "a = a0 − a1. An opened event has the VIP index here, the client's address in words 10 to 13, and its port and the VIP's in word 14. In a profile event, raised where a SYN-ACK differs from what server.profile says: what it keeps, laid out as that word."),
	)}
}

func completionDescriptor() Format {
	return Format{Name: "completion", Bytes: 64, Doc: "Answer to a command. The sequence word repeats the command's.", Words: descriptor(
		enum("type", 1, 7, "Kind of descriptor.", "none", "completion"),
		w("verb", 7, "", "Verb of the command.", f("verb", 0, 8, "Command verb.")),
		w("cookie", 8, "", "The command's cookie."),
		wn("result", 9, 7, "", "By verb: lookup gives control and handle words of the entry; snapshot gives timer.now, low word first. allocate answers in the handle word; connect gives the server index; take gives H, and the number of bytes in the length word."),
	)}
}

func injectDescriptor() Format {
	return Format{Name: "inject", Bytes: 64, Doc: "A frame from the host.", Words: descriptor(
		enum("type", 1, 7, "What to do with the frame.", "none", "emit", "reinject"),
		w("flags", 7, "", "Modifiers of reinject.", f("back", 0, 1, "What would go to a wire comes back to the host, however long, with reason fragmented."), f("module_done", 1, 1, "The host has seen the payload: it goes on.")),
		w("cookie", 8, "", "Returned with what comes back."),
		wn("reserved", 9, 7, "", "Zero."),
	)}
}

func commandDescriptor() Format {
	return Format{Name: "command", Bytes: 64, Doc: "A command for the address management unit. Key arguments are laid out as in cam_word.", Words: descriptor(
		enum("type", 1, 7, "Verb.", "none", "allocate", "arm_and_send", "reset", "free", "cam_insert", "cam_erase", "cam_lookup", "clear", "fill", "read", "write", "snapshot", "connect", "reply", "take", "feed", "pass", "adjust"),
		w("flags", 7, "", "Modifiers.", f("server_side", 0, 1, "CAM verbs: the server-side CAM."), f("to_client", 1, 1, "reset: send RST to the client."), f("to_server", 2, 1, "reset: send RST to the server."), f("leg_b", 3, 1, "Leg set B."),
			f("group", 4, 1, "connect: key_index is a group, and the card picks one of its servers."), f("replace", 5, 1, "connect: the bytes at iova take the place of what the head buffer holds; value says how many bytes the host inserted."),
			f("last", 6, 1, "connect: boundary is the end of the only request."), f("keep", 7, 1, "take: the head buffer keeps its bytes, and the client is told nothing."),
			f("server_stream", 8, 1, "adjust: the stream of the server."), f("template", 9, 1, "pass: a template, no connection."), f("module", 10, 1, "pass: payload goes by way of the host."), f("from_server", 11, 1, "pass: the server begins; the client's link is that of the connection in the handle word.")),
		w("cookie", 8, "", "Returned in the completion."),
		w("bar2_offset", 9, "bytes", "Bulk verbs: start in BAR2. snapshot: start in BAR0. connect: rule that matched, plus one; zero: as the page says. pass: server index, and in the upper half the source port that the server is to see; zero: the client's. With from_server it is of the local address of the connection in the handle word, where that has one."),
		w("value", 10, "", "fill: the word. connect with replace: bytes that the host inserted, less those it took out (two's complement). adjust: bytes by which the stream is longer from boundary on (two's complement)."),
		w("key_control", 11, "", "CAM verbs: control word of the key.", f("valid", 0, 1, "One."), kind(1), f("leg_b", 5, 1, "Leg set B."), f("protocol", 8, 8, "IP protocol."), f("vlan", 16, 12, "VLAN id.")),
		w("key_ports", 12, "", "CAM verbs: ports. connect: port is the source port the server is to see; zero: the client's.", f("port", 0, 16, "Client or local port."), f("destination", 16, 16, "Port of the VIP.")),
		w("key_index", 13, "", "CAM verbs: VIP or server index. connect: server or group index.", f("index", 0, 16, "Index.")),
		w("boundary", 14, "", "connect with last: client sequence number behind the only request. adjust: sequence number from which on the stream is longer, in the client's numbers as they were without adjustments: state where the receiver may still ask for something before the last one, argument where it has the byte before it already. pass: service index, and in the upper half the VIP port that the client sees where the key's destination is not it."),
		wn("reserved", 15, 1, "", "Zero. An IPv6 key's address is read from iova, 16 bytes; an IPv4 address is in value."),
	)}
}
