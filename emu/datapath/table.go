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
	states           = 8
)

// Side tells which CAM a segment hit.
type Side = uint8

// The sides.
const (
	ClientSide Side = iota
	ServerSide
	sides
)

// Kind of a TCP segment, from its flags and length alone.
type Kind uint8

// The kinds.
const (
	SYN     Kind = iota // SYN without ACK, with or without data
	SYNACK              // SYN with ACK
	ACK                 // ACK without payload
	Data                // payload
	FIN                 // FIN without payload
	FINData             // FIN with payload
	RST                 // RST, whatever else
	NoACK               // neither SYN, RST nor ACK
	Kinds
)

var kindNames = [Kinds]string{"SYN", "SYN-ACK", "ACK", "data", "FIN", "FIN with data", "RST", "no ACK"}

// String returns the kind as documents write it.
func (k Kind) String() string { return name(kindNames[:], int(k)) }

// Verdict is what the card does with a segment.
type Verdict uint8

// The verdicts. Each names the function that carries it out.
const (
	VerdictNone           Verdict = iota
	VerdictDrop                   // count and drop
	VerdictException              // to the host
	VerdictOpen                   // take a page, answer with SYN-ACK
	VerdictSynAgain               // the SYN-ACK again; another ISN starts over
	VerdictEstablish              // complete the client's handshake; payload goes on as request
	VerdictProbe                  // answer what acknowledges or repeats nothing new
	VerdictHold                   // put payload into the head buffer; a complete head starts the server end
	VerdictAppend                 // put payload behind the head
	VerdictClientGone             // the client gave up before the splice
	VerdictClientReset            // exact RST before the splice ends the connection
	VerdictServerSynAck           // complete the server's handshake, arm, send the held bytes
	VerdictServerRefused          // the server does not want the connection
	VerdictServerStale            // an answer of an older connection: RST to the server
	VerdictTranslate              // rewrite and forward
	VerdictTranslateFIN           // rewrite and forward, note the FIN if its receiver takes it
	VerdictTranslateRST           // rewrite and forward; an exact one ends the connection
	VerdictServerAckAgain         // our ACK was lost: send it again
	VerdictReopen                 // a newer SYN of the same client port recycles a page in quarantine
)

var verdictNames = [...]string{
	VerdictNone: "none", VerdictDrop: "drop", VerdictException: "exception", VerdictOpen: "open", VerdictSynAgain: "SYN again",
	VerdictEstablish: "establish", VerdictProbe: "probe", VerdictHold: "hold", VerdictAppend: "append",
	VerdictClientGone: "client gone", VerdictClientReset: "client reset", VerdictServerSynAck: "server SYN-ACK",
	VerdictServerRefused: "server refused", VerdictServerStale: "server stale", VerdictTranslate: "translate",
	VerdictTranslateFIN: "translate FIN", VerdictTranslateRST: "translate RST", VerdictServerAckAgain: "server ACK again",
	VerdictReopen: "reopen",
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

// Row is one line of the state table.
type Row struct {
	State    State
	Side     Side
	Kind     Kind
	Verdict  Verdict
	Executor Executor
	Sends    string   // what the card sends beside the segment itself
	Counter  regs.Reg // counted when the row alone decides; zero: the verdict counts
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

func build() (t [states][sides][Kinds]Row) {
	set := func(s State, side Side, v Verdict, counter regs.Reg, sends string, kinds ...Kind) {
		for _, k := range kinds {
			x := Card
			if v == VerdictException {
				x = Host
			}
			t[s][side][k] = Row{State: s, Side: side, Kind: k, Verdict: v, Executor: x, Sends: sends, Counter: counter}
		}
	}
	all := []Kind{SYN, SYNACK, ACK, Data, FIN, FINData, RST, NoACK}
	for s := range State(states) {
		for side := range Side(sides) {
			set(s, side, VerdictDrop, regs.ConnectionDropState, "", all...)
		}
	}

	set(Free, ClientSide, VerdictException, 0, "", all...)
	set(Free, ClientSide, VerdictOpen, 0, "SYN-ACK, or RST where no page or CAM place is free", SYN)
	set(Free, ServerSide, VerdictException, 0, "", all...)

	set(SynRcvd, ClientSide, VerdictSynAgain, 0, "SYN-ACK", SYN)
	set(SynRcvd, ClientSide, VerdictEstablish, 0, "RST where the acknowledgement is not of our SYN", ACK)
	set(SynRcvd, ClientSide, VerdictEstablish, 0, "ACK; SYN to the server when the head is complete; RST where the acknowledgement is not of our SYN, or the FIN comes before the end of the head", Data, FINData)
	set(SynRcvd, ClientSide, VerdictEstablish, 0, "RST; ACK where it is not the next in order", FIN)
	set(SynRcvd, ClientSide, VerdictClientReset, 0, "", RST)

	set(WaitHead, ClientSide, VerdictProbe, 0, "ACK", SYN)
	set(WaitHead, ClientSide, VerdictProbe, 0, "ACK where it repeats bytes", ACK)
	set(WaitHead, ClientSide, VerdictHold, 0, "ACK; SYN to the server when the head is complete", Data)
	set(WaitHead, ClientSide, VerdictHold, 0, "ACK; SYN to the server when the head is complete; RST where the FIN comes before the end of the head", FINData)
	set(WaitHead, ClientSide, VerdictClientGone, 0, "RST to the client; ACK where it is not the next in order", FIN)
	set(WaitHead, ClientSide, VerdictClientReset, 0, "", RST)

	set(ServerSyn, ClientSide, VerdictProbe, 0, "ACK", SYN)
	set(ServerSyn, ClientSide, VerdictProbe, 0, "ACK where it repeats bytes", ACK)
	set(ServerSyn, ClientSide, VerdictAppend, 0, "ACK", Data, FIN, FINData)
	set(ServerSyn, ClientSide, VerdictClientReset, 0, "RST to the server", RST)
	set(ServerSyn, ServerSide, VerdictServerSynAck, 0, "ACK with the held bytes; RST where the acknowledgement is not of our SYN", SYNACK)
	set(ServerSyn, ServerSide, VerdictServerRefused, 0, "RST to the client", RST)
	set(ServerSyn, ServerSide, VerdictServerStale, 0, "RST to the server", ACK, Data, FIN, FINData)

	for _, s := range []State{Spliced, Closing} {
		for side := range Side(sides) {
			set(s, side, VerdictTranslate, 0, "", ACK, Data, NoACK)
			set(s, side, VerdictTranslateFIN, 0, "", FIN, FINData)
			set(s, side, VerdictTranslateRST, 0, "", RST)
		}
		set(s, ClientSide, VerdictTranslate, 0, "", SYN, SYNACK)
		set(s, ServerSide, VerdictTranslate, 0, "", SYN)
		set(s, ServerSide, VerdictServerAckAgain, regs.ConnectionDropSynAck, "ACK to the server", SYNACK)
	}

	for side := range Side(sides) {
		set(Quarantine, side, VerdictTranslate, 0, "", ACK, Data, FIN, FINData, RST, NoACK)
	}
	set(Quarantine, ClientSide, VerdictReopen, 0, "SYN-ACK where the SYN is newer", SYN)
	set(Quarantine, ServerSide, VerdictTranslate, 0, "", SYNACK)

	set(Stateless, ClientSide, VerdictException, 0, "", all...)
	set(Stateless, ServerSide, VerdictException, 0, "", all...)
	return t
}

// Conditions lists what decides inside a verdict. A row of the host is handed over by an exception with a reason; the
// host answers with a command.
func Conditions() []Condition {
	return []Condition{
		{VerdictOpen, "no listener for address and port", Host, "exception no_match", "", 0},
		{VerdictOpen, "the host holds the key", Host, "exception no_match", "", 0},
		{VerdictOpen, "the unit is disabled", Card, "refuse", "RST", regs.AmuDisabled},
		{VerdictOpen, "address list empty and quarantine too", Card, "refuse", "RST", regs.AmuNoPage},
		{VerdictOpen, "no CAM place within the bound", Card, "refuse", "RST", regs.AmuNoCamPlace},
		{VerdictEstablish, "does not acknowledge our SYN", Card, "drop", "RST", regs.ConnectionDropBadAck},
		{VerdictHold, "no head buffer free", Card, "drop unacknowledged", "", regs.HeadNoneFree},
		{VerdictHold, "bytes all held already", Card, "drop", "ACK", regs.ConnectionDropDuplicate},
		{VerdictHold, "begins beyond a gap", Card, "drop", "ACK", regs.ConnectionDropOutOfOrder},
		{VerdictHold, "the host is deciding", Card, "drop", "", regs.ConnectionDropWaitingHost},
		{VerdictHold, "the FIN comes before the end of the head", Card, "abort", "RST to the client", regs.ConnectionAbortClientGone},
		{VerdictHold, "head does not fit its buffer", Host, "exception head_too_large", "", 0},
		{VerdictHold, "head is no legal request", Host, "exception bad_request", "ACK where it is whole", 0},
		{VerdictHold, "no rule and no default", Host, "exception no_rule", "ACK", 0},
		{VerdictHold, "the group has no server", Host, "exception no_server", "ACK", 0},
		{VerdictHold, "the server-side key is taken", Card, "abort", "ACK; RST to the client", regs.ConnectionAbortKeyExists},
		{VerdictHold, "no server-side CAM place within the bound", Card, "abort", "ACK; RST to the client", regs.AmuNoCamPlace},
		{VerdictAppend, "no room behind the head", Card, "drop unacknowledged", "", regs.ConnectionDropNoRoom},
		{VerdictServerSynAck, "does not acknowledge our SYN", Card, "drop", "RST to the server", regs.ConnectionDropBadAck},
		{VerdictServerSynAck, "keeps less than was promised", Card, "abort", "RST to both", regs.ConnectionAbortProfile},
		{VerdictTranslate, "from the client, wholly below H", Card, "drop", "ACK", regs.ConnectionDropBelowHeld},
		{VerdictTranslate, "from the client, across H", Card, "drop", "", regs.ConnectionDropStraddlesHeld},
		{VerdictTranslate, "from the server, acknowledges below H, no payload", Card, "drop", "held bytes not sent yet", regs.ConnectionDropHeldAck},
		{VerdictTranslate, "TTL or hop limit used up", Host, "exception ttl", "", 0},
		{VerdictTranslate, "next hop not resolved", Card, "drop", "", regs.ConnectionDropNextHop},
		{VerdictReopen, "SYN not newer than the connection", Card, "drop", "", regs.ConnectionDropOldSyn},
	}
}
