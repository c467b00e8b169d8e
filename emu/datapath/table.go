package datapath

import "splicenic/regs"

// State of a page, as in page.control.state.
type State = uint8

// The states.
const (
	Free       State = regs.PageControlStateFree
	SynRcvd    State = regs.PageControlStateSynRcvd
	WaitHead   State = regs.PageControlStateWaitHead
	ServerSyn  State = regs.PageControlStateServerSyn
	Spliced    State = regs.PageControlStateSpliced
	Closing    State = regs.PageControlStateClosing
	Quarantine State = regs.PageControlStateQuarantine
	Stateless  State = regs.PageControlStateStateless
)

// The states of connections that are passed on to a server at their first segment: those of their pages, apart from the
// others since what happens in them is another thing. In PassedFree there is no page yet; PassedTemplate is no connection.
const (
	PassedFree State = 8 + iota
	PassedSynRcvd
	PassedSpliced
	PassedClosing
	PassedQuarantine
	PassedTemplate
)

const states = int(PassedTemplate) + 1

// StateName is a state as documents write it.
func StateName(s State) string {
	return name([]string{"FREE", "SYN_RCVD", "WAIT_HEAD", "SERVER_SYN", "SPLICED", "CLOSING", "QUARANTINE", "STATELESS",
		"PASSED_FREE", "PASSED_SYN_RCVD", "PASSED_SPLICED", "PASSED_CLOSING", "PASSED_QUARANTINE", "PASSED_TEMPLATE"}, int(s))
}

// Side tells which CAM a segment hit.
type Side = uint8

// The sides.
const (
	ClientSide Side = iota
	ServerSide
	sides
)

// Kind of a TCP segment.
type Kind uint8

// The kinds. Those up to NoACK the parser tells from flags and length alone. The others are told apart by the page, or
// by options that the card does not read; the parser calls them by one of the first, and the data path looks closer only
// where a row of the table asks for it.
const (
	SYN      Kind = iota // SYN without ACK, without payload
	SYNData              // SYN without ACK, with payload
	SYNFIN               // SYN with FIN or RST, or no flag at all: flags that no end sends
	SYNACK               // SYN with ACK
	ACK                  // ACK without payload
	Data                 // payload
	URG                  // payload with the urgent pointer
	FIN                  // FIN without payload
	FINData              // FIN with payload
	RST                  // RST, whatever else, with a number that its receiver takes for exact
	NoACK                // neither SYN, RST nor ACK
	Datagram             // of UDP

	RSTInRange      // RST that its receiver answers with a challenge
	RSTOutOfRange   // RST that its receiver ignores
	KeepAlive       // one below the next number, with no byte or one
	ZeroWindowProbe // one byte at the next number where there is no room
	UnknownOptions  // payload with options of kinds that the card does not know
	Kinds
)

var kindNames = [Kinds]string{
	SYN: "SYN", SYNData: "SYN with data", SYNFIN: "SYN+FIN", SYNACK: "SYN-ACK", ACK: "ACK", Data: "data", URG: "URG", FIN: "FIN",
	FINData: "FIN with data", RST: "RST exact", NoACK: "no ACK", Datagram: "datagram", RSTInRange: "RST in range", RSTOutOfRange: "RST out of range",
	KeepAlive: "keep-alive probe", ZeroWindowProbe: "zero-window probe", UnknownOptions: "unknown options",
}

// parsedAs lists what the parser calls the kinds that it does not tell apart.
var parsedAs = [Kinds][]Kind{RSTInRange: {RST}, RSTOutOfRange: {RST}, KeepAlive: {ACK, Data}, ZeroWindowProbe: {Data}, UnknownOptions: {Data}}

// String returns the kind as documents write it.
func (k Kind) String() string { return name(kindNames[:], int(k)) }

// Verdict is what the card does with a segment.
type Verdict uint8

// The verdicts. Each names the function that carries it out.
const (
	VerdictNone             Verdict = iota
	VerdictDrop                     // count and drop
	VerdictException                // to the host
	VerdictOpen                     // take a page, answer with SYN-ACK
	VerdictSynAgain                 // the SYN-ACK again; another ISN starts over
	VerdictEstablish                // complete the client's handshake; payload goes on as request
	VerdictProbe                    // answer what acknowledges or repeats nothing new
	VerdictHold                     // put payload into the head buffer; a complete head starts the server end
	VerdictAppend                   // put payload behind the head
	VerdictClientGone               // the client gave up before the splice
	VerdictClientReset              // exact RST before the splice ends the connection
	VerdictChallenge                // acknowledge what we have: the sender of a RST answers with an exact one
	VerdictServerSynAck             // complete the server's handshake, arm, send the held bytes
	VerdictServerRefused            // the server does not want the connection
	VerdictServerStale              // an answer of an older connection: RST to the server
	VerdictTranslate                // rewrite and forward
	VerdictTranslateFIN             // rewrite and forward, note the FIN if its receiver takes it
	VerdictTranslateRST             // rewrite and forward; the connection is over
	VerdictServerAckAgain           // our ACK was lost: send it again
	VerdictReopen                   // a newer SYN of the same client port recycles a page in quarantine
	VerdictCookie                   // answer a SYN with a cookie
	VerdictProve                    // take a page for who brings a cookie back
	VerdictPass                     // take a page and pass the segment on to a server of the group
	VerdictSloppy                   // the same without SYN, where the service wants it
	VerdictPassSyn                  // pass a SYN on to the same server, or to another where the connection is over
	VerdictPassEstablish            // the client answers: pass it on, the connection is in use
	VerdictPassSynAck               // pass a SYN-ACK on, note what it says
	VerdictPassServerSyn            // the same of the SYN of a server that begins
	VerdictPassClientSynAck         // the client answers that: pass it on, the connection is in use
)

var verdictNames = [...]string{
	VerdictNone: "none", VerdictDrop: "drop", VerdictException: "exception", VerdictOpen: "open", VerdictSynAgain: "SYN again",
	VerdictEstablish: "establish", VerdictProbe: "probe", VerdictHold: "hold", VerdictAppend: "append",
	VerdictClientGone: "client gone", VerdictClientReset: "client reset", VerdictChallenge: "challenge", VerdictServerSynAck: "server SYN-ACK",
	VerdictServerRefused: "server refused", VerdictServerStale: "server stale", VerdictTranslate: "translate",
	VerdictTranslateFIN: "translate FIN", VerdictTranslateRST: "translate RST", VerdictServerAckAgain: "server ACK again",
	VerdictReopen: "reopen", VerdictCookie: "cookie", VerdictProve: "prove",
	VerdictPass: "pass", VerdictSloppy: "pass without SYN", VerdictPassSyn: "pass SYN", VerdictPassEstablish: "pass, establish", VerdictPassSynAck: "pass SYN-ACK", VerdictPassServerSyn: "pass the server's SYN", VerdictPassClientSynAck: "pass the client's SYN-ACK",
}

// String returns the verdict's name.
func (v Verdict) String() string { return name(verdictNames[:], int(v)) }

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

// Executor says who carries a row out.
type Executor uint8

// The executors.
const (
	Card Executor = iota + 1
	Host
)

// String returns the executor's name.
func (x Executor) String() string { return name([]string{"nobody", "card", "host"}, int(x)) }

// States is a set of states: bit s is state s.
type States uint16

// In makes a set of states.
func In(all ...State) (s States) {
	for _, x := range all {
		s |= 1 << x
	}
	return s
}

// Row is one line of the state table.
type Row struct {
	State    State
	Side     Side
	Kind     Kind
	Verdict  Verdict
	Executor Executor
	Sends    string   // what the card sends beside the segment itself
	Counter  regs.Reg // counts the row where no condition of its verdict does
	Then     States   // what the segment may leave the connection in
}

// Condition is a row that depends on more than the segment's kind: what the page or the tables say. It is reached from
// the rows of one verdict.
type Condition struct {
	Verdict  Verdict
	When     string
	Executor Executor
	Does     string
	Sends    string
	Counter  regs.Reg
}

// table is the state table by state, side and kind.
var table = build()

// refined says for which of the parser's kinds a row depends on what the page says: bit k of a state and side.
var refined = refinements()

// Table lists every row in order of state, side and kind.
func Table() []Row {
	rows := make([]Row, 0, states*int(sides)*int(Kinds))
	for s := range table {
		for side := range table[s] {
			rows = append(rows, table[s][side][:]...)
		}
	}
	return rows
}

func refinements() (bits [states][sides]uint32) {
	for s := range table {
		for side := range table[s] {
			rows := &table[s][side]
			for k, names := range parsedAs {
				for _, as := range names {
					if rows[k].Verdict != rows[as].Verdict {
						bits[s][side] |= 1 << as
					}
				}
			}
		}
	}
	return bits
}

func build() (t [states][sides][Kinds]Row) {
	set := func(s State, side Side, v Verdict, counter regs.Reg, sends string, kinds ...Kind) {
		for _, k := range kinds {
			x := Card
			if v == VerdictException {
				x = Host
			}
			t[s][side][k] = Row{State: s, Side: side, Kind: k, Verdict: v, Executor: x, Sends: sends, Counter: counter, Then: In(s)}
		}
	}
	then := func(s State, side Side, then States, kinds ...Kind) {
		for _, k := range kinds {
			t[s][side][k].Then = then
		}
	}
	all := []Kind{SYN, SYNData, SYNFIN, SYNACK, ACK, Data, URG, FIN, FINData, RST, NoACK, Datagram, RSTInRange, RSTOutOfRange, KeepAlive, ZeroWindowProbe, UnknownOptions}
	payload := []Kind{Data, URG, UnknownOptions, ZeroWindowProbe}
	for s := range State(states) {
		for side := range Side(sides) {
			set(s, side, VerdictDrop, regs.ConnectionDropState, "", all...)
		}
	}

	const noMatch = regs.ParserExceptionNoMatch
	set(Free, ClientSide, VerdictException, noMatch, "", all...)
	set(Free, ClientSide, VerdictOpen, regs.ConnectionOpened, "SYN-ACK, or RST where no page or CAM place is free", SYN, SYNData)
	then(Free, ClientSide, In(Free, SynRcvd), SYN, SYNData)
	set(Free, ServerSide, VerdictException, noMatch+regs.ParserStride, "", all...)

	const established = regs.ConnectionEstablished
	set(SynRcvd, ClientSide, VerdictSynAgain, regs.TransmitResentSyn+clientEnd, "SYN-ACK", SYN, SYNData)
	set(SynRcvd, ClientSide, VerdictEstablish, established, "RST where the acknowledgement is not of our SYN; SYN to the server where it speaks first", ACK)
	set(SynRcvd, ClientSide, VerdictEstablish, established, "ACK; SYN to the server when the head is complete; RST where the acknowledgement is not of our SYN, or the FIN comes before the end of the head", FINData)
	set(SynRcvd, ClientSide, VerdictEstablish, established, "ACK; SYN to the server when the head is complete; RST where the acknowledgement is not of our SYN", Data, URG, UnknownOptions)
	set(SynRcvd, ClientSide, VerdictEstablish, established, "ACK; RST where the acknowledgement is not of our SYN; SYN to the server where it speaks first", ZeroWindowProbe)
	set(SynRcvd, ClientSide, VerdictEstablish, established, "ACK where it carries a byte; RST where the acknowledgement is not of our SYN; SYN to the server where it speaks first", KeepAlive)
	set(SynRcvd, ClientSide, VerdictEstablish, established, "RST; ACK where it is not the next in order", FIN)
	set(SynRcvd, ClientSide, VerdictClientReset, regs.ConnectionAbortClientGone, "", RST)
	then(SynRcvd, ClientSide, In(SynRcvd, WaitHead, ServerSyn), ACK, KeepAlive, ZeroWindowProbe, Data, URG, UnknownOptions)
	then(SynRcvd, ClientSide, In(SynRcvd, WaitHead, ServerSyn, Free), FINData)
	then(SynRcvd, ClientSide, In(SynRcvd, WaitHead, Free), FIN)

	const duplicate = regs.ConnectionDropDuplicate
	set(WaitHead, ClientSide, VerdictProbe, duplicate, "ACK", SYN, SYNData, KeepAlive)
	set(WaitHead, ClientSide, VerdictProbe, regs.ParserClassOrdinary, "ACK where it repeats bytes", ACK)
	set(WaitHead, ClientSide, VerdictProbe, regs.ConnectionDropNoRoom, "ACK", ZeroWindowProbe)
	set(WaitHead, ClientSide, VerdictHold, regs.ConnectionHeadComplete, "ACK; SYN to the server when the head is complete", Data, URG, UnknownOptions)
	set(WaitHead, ClientSide, VerdictHold, regs.ConnectionHeadComplete, "ACK; SYN to the server when the head is complete; RST where the FIN comes before the end of the head", FINData)
	set(WaitHead, ClientSide, VerdictClientGone, regs.ConnectionAbortClientGone, "RST to the client; ACK where it is not the next in order", FIN)
	then(WaitHead, ClientSide, In(WaitHead, ServerSyn), Data, URG, UnknownOptions)
	then(WaitHead, ClientSide, In(WaitHead, ServerSyn, Free), FINData)
	then(WaitHead, ClientSide, In(WaitHead, Free), FIN)
	set(WaitHead, ClientSide, VerdictClientReset, regs.ConnectionAbortClientGone, "", RST)

	const acked = regs.TransmitAck + clientEnd
	set(ServerSyn, ClientSide, VerdictProbe, duplicate, "ACK", SYN, SYNData, KeepAlive)
	set(ServerSyn, ClientSide, VerdictProbe, regs.ParserClassOrdinary, "ACK where it repeats bytes", ACK)
	set(ServerSyn, ClientSide, VerdictProbe, regs.ConnectionDropNoRoom, "ACK", ZeroWindowProbe)
	set(ServerSyn, ClientSide, VerdictAppend, acked, "ACK", Data, URG, UnknownOptions, FIN, FINData)
	set(ServerSyn, ClientSide, VerdictClientReset, regs.ConnectionAbortClientGone, "RST to the server", RST)
	set(ServerSyn, ServerSide, VerdictServerSynAck, regs.ConnectionSpliced, "ACK with the held bytes; ACK to the client; RST where the acknowledgement is not of our SYN; SYN where that is the first such answer", SYNACK)
	set(ServerSyn, ServerSide, VerdictServerRefused, regs.ParserClassException+regs.ParserStride, "", RST)
	set(ServerSyn, ServerSide, VerdictServerStale, regs.ConnectionDropBadAck, "RST to the server; SYN to the server where it is the first such answer", append(payload, ACK, FIN, FINData, KeepAlive)...)
	then(ServerSyn, ServerSide, In(ServerSyn, Spliced), SYNACK)
	set(ServerSyn, ServerSide, VerdictDrop, regs.ConnectionDropRst, "", RSTInRange, RSTOutOfRange)
	for _, s := range []State{SynRcvd, WaitHead, ServerSyn} {
		set(s, ClientSide, VerdictChallenge, regs.ConnectionDropRst, "ACK", RSTInRange)
		set(s, ClientSide, VerdictDrop, regs.ConnectionDropRst, "", RSTOutOfRange)
		then(s, ClientSide, In(Free), RST)
	}
	then(ServerSyn, ServerSide, In(WaitHead), RST)

	for side := range Side(sides) {
		translated := [...]regs.Reg{ClientSide: regs.PmuTranslatedClient, ServerSide: regs.PmuTranslatedServer}[side]
		for _, s := range []State{Spliced, Closing} {
			set(s, side, VerdictTranslate, translated, "", append(payload, SYN, SYNData, ACK, NoACK, KeepAlive, RSTInRange, RSTOutOfRange)...)
			set(s, side, VerdictTranslateFIN, translated, "", FIN, FINData)
			set(s, side, VerdictTranslateRST, regs.ConnectionClosedRst, "", RST)
			if side == ClientSide {
				set(s, side, VerdictTranslateRST, regs.ConnectionClosedRst, "RST to the server where bytes are held that it has not", RST)
			}
			then(s, side, In(Quarantine), RST)
		}
		set(Quarantine, side, VerdictTranslate, translated, "", append(payload, ACK, FIN, FINData, RST, RSTInRange, RSTOutOfRange, NoACK, KeepAlive)...)
		then(Spliced, side, In(Spliced, Closing), FIN, FINData)
		then(Closing, side, In(Closing, Quarantine), append(payload, ACK, FIN, FINData, KeepAlive)...)
	}
	for _, s := range []State{Spliced, Closing} {
		set(s, ClientSide, VerdictTranslate, regs.PmuTranslatedClient, "", SYNACK)
		set(s, ServerSide, VerdictServerAckAgain, regs.ConnectionDropSynAck, "ACK to the server", SYNACK)
	}
	set(Quarantine, ClientSide, VerdictReopen, regs.ConnectionReused, "SYN-ACK where the SYN is newer", SYN, SYNData)
	then(Quarantine, ClientSide, In(Quarantine, SynRcvd), SYN, SYNData)
	set(Quarantine, ServerSide, VerdictTranslate, regs.PmuTranslatedServer, "", SYNACK)

	const proven = regs.DefenceCookieValid
	set(Stateless, ClientSide, VerdictDrop, regs.DefenceCookieBad, "", all...)
	set(Stateless, ClientSide, VerdictCookie, regs.DefenceCookieSent, "SYN-ACK", SYN, SYNData)
	set(Stateless, ClientSide, VerdictProve, proven, "RST where no page or CAM place is free; SYN to the server where it speaks first", ACK)
	set(Stateless, ClientSide, VerdictProve, proven, "ACK; SYN to the server when the head is complete; RST where no page or CAM place is free", Data, URG, UnknownOptions)
	set(Stateless, ClientSide, VerdictProve, proven, "ACK; SYN to the server when the head is complete; RST where no page or CAM place is free, or the FIN comes before the end of the head", FINData)
	set(Stateless, ClientSide, VerdictProve, proven, "ACK; RST where no page or CAM place is free; SYN to the server where it speaks first", ZeroWindowProbe)
	set(Stateless, ClientSide, VerdictProve, proven, "RST", FIN)
	set(Stateless, ClientSide, VerdictProve, regs.DefenceCookieBad, "", KeepAlive)
	then(Stateless, ClientSide, In(Stateless, WaitHead, ServerSyn), ACK, ZeroWindowProbe, Data, URG, UnknownOptions)
	then(Stateless, ClientSide, In(Stateless, ServerSyn), FINData)
	set(Stateless, ServerSide, VerdictException, noMatch+regs.ParserStride, "", all...)
	set(Free, ClientSide, VerdictException, regs.ParserExceptionProtocol, "", Datagram)
	set(Free, ServerSide, VerdictException, regs.ParserExceptionProtocol+regs.ParserStride, "", Datagram)
	buildPassed(set, then, all)

	for s := range State(states) {
		for side := range Side(sides) { // no state gets to see them
			set(s, side, VerdictDrop, regs.ParserDropTcpFlags+regs.Reg(side)*regs.ParserStride, "", SYNFIN)
		}
	}
	return t
}

// buildPassed writes the rows of passed connections.
func buildPassed(set func(State, Side, Verdict, regs.Reg, string, ...Kind), then func(State, Side, States, ...Kind), all []Kind) {
	const refused = "RST where the group has no server, or no page or CAM place is free"
	set(PassedFree, ClientSide, VerdictSloppy, regs.PassDropNoPage, "", all...)
	set(PassedFree, ClientSide, VerdictPass, regs.PassOpened, refused, SYN, SYNData)
	set(PassedFree, ClientSide, VerdictPass, regs.PassOpened, "", Datagram)
	then(PassedFree, ClientSide, In(PassedFree, PassedSynRcvd), SYN, SYNData)
	then(PassedFree, ClientSide, In(PassedFree, PassedSpliced), Datagram, ACK, Data, URG, KeepAlive, ZeroWindowProbe, UnknownOptions)
	then(PassedFree, ClientSide, In(PassedFree, PassedClosing), FIN, FINData)
	set(PassedFree, ServerSide, VerdictException, regs.ParserExceptionNoMatch+regs.ParserStride, "", all...)
	set(PassedFree, ServerSide, VerdictException, regs.ParserExceptionProtocol+regs.ParserStride, "", Datagram)

	answers := []Kind{ACK, Data, URG, UnknownOptions, ZeroWindowProbe, KeepAlive}
	for side := range Side(sides) {
		translated := [...]regs.Reg{ClientSide: regs.PmuTranslatedClient, ServerSide: regs.PmuTranslatedServer}[side]
		for _, s := range []State{PassedSynRcvd, PassedSpliced, PassedClosing, PassedQuarantine} {
			set(s, side, VerdictTranslate, translated, "", all...)
			if s == PassedQuarantine {
				continue
			}
			set(s, side, VerdictTranslateRST, regs.PassClosedRst, "", RST)
			then(s, side, In(PassedQuarantine), RST)
		}
		for _, s := range []State{PassedSpliced, PassedClosing} {
			set(s, side, VerdictTranslateFIN, translated, "", FIN, FINData)
			then(s, side, In(s, PassedClosing), FIN, FINData)
		}
		then(PassedClosing, side, In(PassedClosing, PassedQuarantine), append([]Kind{FIN, FINData}, answers...)...)
		for _, s := range []State{PassedSynRcvd, PassedClosing, PassedQuarantine} {
			set(s, side, VerdictDrop, regs.ConnectionDropState, "", Datagram)
		}
	}
	translated := regs.PmuTranslatedClient
	set(PassedSynRcvd, ClientSide, VerdictPassEstablish, translated, "", append([]Kind{FIN, FINData}, answers...)...)
	then(PassedSynRcvd, ClientSide, In(PassedSynRcvd, PassedSpliced), answers...)
	then(PassedSynRcvd, ClientSide, In(PassedSynRcvd, PassedClosing), FIN, FINData)
	for _, s := range []State{PassedSynRcvd, PassedSpliced, PassedClosing, PassedQuarantine} {
		set(s, ClientSide, VerdictPassSyn, translated, "", SYN, SYNData)
		then(s, ClientSide, In(s, PassedSynRcvd), SYN, SYNData)
	}
	set(PassedSynRcvd, ServerSide, VerdictPassServerSyn, regs.PmuTranslatedServer, "", SYN, SYNData)
	set(PassedSynRcvd, ClientSide, VerdictPassClientSynAck, translated, "", SYNACK)
	then(PassedSynRcvd, ClientSide, In(PassedSynRcvd, PassedSpliced), SYNACK)
	for _, s := range []State{PassedSynRcvd, PassedSpliced, PassedClosing} {
		set(s, ServerSide, VerdictPassSynAck, regs.PmuTranslatedServer, "", SYNACK)
		then(s, ServerSide, In(s, PassedSynRcvd), SYNACK)
	}
}

// usedUp is when a segment out of place is not answered any more.
const usedUp = "the connection has had its answers"

// Conditions lists what decides inside a verdict. A row of the host is handed over by an exception with a reason; the
// host answers with a command.
func Conditions() []Condition {
	return []Condition{
		{VerdictOpen, "no listener for address and port", Host, "exception no_match", "", 0},
		{VerdictOpen, "the host holds the key", Host, "exception no_match", "", 0},
		{VerdictOpen, "the unit is disabled", Card, "refuse", "RST", regs.AmuDisabled},
		{VerdictOpen, "its source has no token left", Card, "drop", "", regs.DefenceSourceLimited},
		{VerdictOpen, "address list empty and quarantine too", Card, "refuse", "RST", regs.AmuNoPage},
		{VerdictOpen, "no CAM place within the bound", Card, "refuse", "RST", regs.AmuNoCamPlace},
		{VerdictEstablish, "does not acknowledge our SYN", Card, "drop", "RST", regs.ConnectionDropBadAck},
		{VerdictEstablish, "the servers speak first", Card, "go to the default group", "SYN to the server", regs.ConnectionEstablished},
		{VerdictEstablish, "the servers speak first, and no group is there", Host, "exception no_rule", "", 0},
		{VerdictEstablish, "the servers speak first, and the group has none", Host, "exception no_server", "", 0},
		{VerdictEstablish, "the servers speak first, and the host alters what they get", Host, "exception rewrite", "", 0},
		{VerdictEstablish, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictProbe, "acknowledges what we did not send", Card, "drop", "ACK", regs.ConnectionDropBadAck},
		{VerdictProbe, "begins beyond a gap", Card, "drop", "ACK", regs.ConnectionDropOutOfOrder},
		{VerdictProbe, "repeats", Card, "drop", "ACK", regs.ConnectionDropDuplicate},
		{VerdictProbe, "no room is left", Card, "drop", "ACK", regs.ConnectionDropNoRoom},
		{VerdictProbe, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictClientGone, "acknowledges what we did not send", Card, "drop", "ACK", regs.ConnectionDropBadAck},
		{VerdictClientGone, "the FIN repeats", Card, "drop", "ACK", regs.ConnectionDropDuplicate},
		{VerdictClientGone, "the FIN is beyond a gap", Card, "drop", "ACK", regs.ConnectionDropOutOfOrder},
		{VerdictClientGone, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictChallenge, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictHold, "the head is not whole yet", Card, "hold", "ACK", regs.TransmitAck + clientEnd},
		{VerdictHold, "acknowledges what we did not send", Card, "drop", "ACK", regs.ConnectionDropBadAck},
		{VerdictHold, "no head buffer free", Card, "drop unacknowledged", "", regs.HeadNoneFree},
		{VerdictHold, "bytes all held already", Card, "drop", "ACK", regs.ConnectionDropDuplicate},
		{VerdictHold, "begins beyond a gap", Card, "drop", "ACK", regs.ConnectionDropOutOfOrder},
		{VerdictHold, "the host is deciding", Card, "drop", "", regs.ConnectionDropWaitingHost},
		{VerdictHold, "the FIN comes before the end of the head", Card, "abort", "RST to the client", regs.ConnectionAbortClientGone},
		{VerdictHold, "the service reads no request", Card, "go to the default group", "ACK; SYN to the server", regs.ConnectionHeadComplete},
		{VerdictHold, "the preface of HTTP/2 without TLS", Card, "go to its group", "ACK; SYN to the server", regs.UrlH2c},
		{VerdictHold, "the preface of HTTP/2 without TLS, which the service does not take", Host, "exception h2c", "", regs.UrlH2c},
		{VerdictHold, "what comes may yet become the preface", Card, "hold", "ACK", regs.TransmitAck + clientEnd},
		{VerdictHold, "the first byte begins no request", Host, "exception not_http", "", regs.UrlNotHttp},
		{VerdictHold, "the first byte begins no TLS record", Host, "exception not_tls", "", regs.UrlNotTls},
		{VerdictHold, "the hello is none, or illegal", Host, "exception bad_hello", "ACK", regs.UrlBadHello},
		{VerdictHold, "the hello names no server", Card, "go by what else it says", "ACK; SYN to the server", regs.UrlNoSni},
		{VerdictHold, "the path has too many segments", Host, "exception rule_host", "ACK", regs.UrlTooDeep},
		{VerdictHold, "a rule that only the host can test may take it", Host, "exception rule_host", "ACK", regs.UrlHost},
		{VerdictHold, "the rule has the host answer", Host, "exception answer", "ACK", regs.UrlAnswered},
		{VerdictHold, "the host alters what the server gets", Host, "exception rewrite", "ACK", 0},
		{VerdictHold, "head does not fit its buffer", Host, "exception head_too_large", "", 0},
		{VerdictHold, "head is no legal request", Host, "exception bad_request", "ACK", regs.UrlMalformed},
		{VerdictHold, "the host gathers the request, and waits for more", Host, "exception head_more", "", regs.ConnectionGathered},
		{VerdictHold, "the host gathers the request, and has not taken all of it", Card, "hold unacknowledged", "", regs.ConnectionGathered},
		{VerdictHold, "the host gathers the request; no room is left", Card, "drop", "ACK", regs.ConnectionDropNoRoom},
		{VerdictHold, "no rule and no default", Host, "exception no_rule", "ACK", 0},
		{VerdictHold, "the group has no server", Host, "exception no_server", "ACK", 0},
		{VerdictHold, "a live connection has the server-side key", Host, "exception key_exists", "ACK", 0},
		{VerdictHold, "a connection in quarantine has the server-side key", Card, "free it", "ACK; SYN to the server", regs.ConnectionKeyRecycled},
		{VerdictHold, "no server-side CAM place within the bound", Card, "abort", "ACK; RST to the client", regs.AmuNoCamPlace},
		{VerdictHold, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictAppend, "acknowledges what we did not send", Card, "drop", "ACK", regs.ConnectionDropBadAck},
		{VerdictAppend, "bytes all held already", Card, "drop", "ACK", regs.ConnectionDropDuplicate},
		{VerdictAppend, "begins beyond a gap", Card, "drop", "ACK", regs.ConnectionDropOutOfOrder},
		{VerdictAppend, "no room behind the head", Card, "drop", "ACK", regs.ConnectionDropNoRoom},
		{VerdictAppend, "lies behind the only request", Card, "drop unacknowledged", "", regs.ConnectionDropLastRequest},
		{VerdictAppend, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictServerSynAck, "does not acknowledge our SYN", Card, "drop", "RST to the server; SYN to the server where it is the first such answer", regs.ConnectionDropBadAck},
		{VerdictServerSynAck, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictServerStale, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictServerAckAgain, "another than that of the handshake", Card, "challenge", "ACK to the server", regs.ConnectionDropSynAck},
		{VerdictServerAckAgain, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictServerSynAck, "keeps less than was promised", Host, "exception server_failed", "RST to the server", regs.ConnectionServerProfile},
		{VerdictServerRefused, "acknowledges our SYN", Host, "exception server_failed", "", 0},
		{VerdictServerStale, "answers a SYN of ours so for the third time", Host, "exception server_failed", "RST to the server", regs.ConnectionDropBadAck},
		{VerdictClientGone, "the host is deciding", Card, "drop", "", regs.ConnectionDropWaitingHost},
		{VerdictClientGone, "the host gathers the request", Host, "exception head_more", "", regs.ConnectionGathered},
		{VerdictTranslate, "from the client, wholly below H", Card, "drop", "ACK", regs.ConnectionDropBelowHeld},
		{VerdictTranslate, usedUp, Card, "drop", "", regs.ConnectionDropStorm},
		{VerdictTranslate, "from the client, across H", Card, "drop", "", regs.ConnectionDropStraddlesHeld},
		{VerdictTranslate, "from the server, acknowledges below H, no payload", Card, "drop", "held bytes not sent yet", regs.ConnectionDropHeldAck},
		{VerdictTranslate, "from the client, wholly behind the only request", Card, "drop", "", regs.ConnectionDropLastRequest},
		{VerdictTranslateFIN, "from the client, wholly behind the only request", Card, "drop", "", regs.ConnectionDropLastRequest},
		{VerdictTranslate, "from the client, wholly behind the only request, whose response it has to the end", Card, "end", "RST to both", regs.ConnectionDropLastRequest},
		{VerdictTranslate, "from the server, acknowledges a head buffer to its end, and more is owed; no payload", Host, "exception held_more", "", regs.ConnectionDropHeldAck},
		{VerdictTranslate, "from the server, acknowledges what the host has not given yet; no payload", Card, "drop", "", regs.ConnectionDropHeldAck},
		{VerdictTranslate, "TTL or hop limit used up", Host, "exception ttl", "", 0},
		{VerdictTranslate, "larger than the next network takes, and not to be cut", Host, "exception too_big", "", 0},
		{VerdictTranslate, "next hop not resolved", Card, "drop", "", regs.ConnectionDropNextHop},
		{VerdictTranslate, "the card is the server; payload", Card, "drop unacknowledged", "", regs.ConnectionDropNoRoom},
		{VerdictTranslate, "the card is the server; acknowledges what was never sent", Card, "drop", "ACK", regs.ConnectionDropBadAck},
		{VerdictTranslate, "the card is the server; repeats a byte", Card, "drop", "ACK", regs.ConnectionDropDuplicate},
		{VerdictTranslateFIN, "the card is the server", Card, "take", "ACK", 0},
		{VerdictTranslate, "the card is the server; a RST in range", Card, "drop", "ACK", regs.ConnectionDropRst},
		{VerdictTranslateRST, "the card is the server; exact", Card, "end", "", regs.ConnectionClosedRst},
		{VerdictCookie, "its source has no token left", Card, "drop", "", regs.DefenceSourceLimited},
		{VerdictProve, "brings no valid cookie back", Card, "drop", "", regs.DefenceCookieBad},
		{VerdictProve, "brings no valid cookie back, for a service without defence", Host, "exception no_match", "", 0},
		{VerdictProve, "no page, no CAM place, or the unit is disabled", Card, "refuse", "RST", regs.DefenceCookieNoPage},
		{VerdictPass, "no service of the listener takes the client", Card, "drop", "", regs.PassDropSource},
		{VerdictPass, "the group has no server that takes the client", Card, "refuse", "RST", regs.PassDropNoServer},
		{VerdictPass, "no page or no CAM place is free", Card, "refuse", "RST", regs.PassDropFull},
		{VerdictSloppy, "the service takes connections in their middle, and has no server for this one", Card, "drop", "", regs.PassDropNoServer},
		{VerdictTranslate, "payload of a connection with an application module", Host, "exception module", "", regs.PassModule},
		{VerdictReopen, "SYN not newer than the connection", Card, "drop", "", regs.ConnectionDropOldSyn},
	}
}
