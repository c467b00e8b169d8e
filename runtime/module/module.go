package module

import "net/netip"

// Direction says who wrote something.
type Direction uint8

// The directions.
const (
	FromClient Direction = iota
	FromServer
)

// Conn is a connection that is read along on, as its two ends see it.
type Conn struct {
	Client netip.AddrPort // as the client's side knows it
	VIP    netip.AddrPort // where the client went
	Server netip.AddrPort // where it ended up
	Local  netip.AddrPort // what the server sees in the client's place: the client, or with fullnat an address of the card
	// Port gives a free port of Local's address, which the server may be told to connect to; false where there is none.
	// It is needed where Local is not the client.
	Port func() (port uint16, ok bool)
}

// translated says whether the server sees somebody else in the client's place.
func (c *Conn) translated() bool { return c.Local.Addr() != c.Client.Addr() }

// An Expectation is a connection that will follow.
type Expectation struct {
	UDP bool
	// FromServer: the server will begin, from any port, toward At. Else the client will, toward At.
	FromServer bool
	At         netip.AddrPort // FromServer: the address and port that the server was told; else the VIP's
	Client     netip.AddrPort // FromServer: where that leads; else the client, whose port nobody knows
}

// Note says what a Verdict means for the counters.
type Note uint8

// The notes.
const (
	Nothing    Note = iota
	Altered         // a line that names an address, in the other end's view
	Expects         // a line that announces a connection, left as it is
	Foreign         // a line that names somebody else's address: the server is not to connect there
	Unreadable      // a line that ought to name an address and does not
	NoPort          // no local port was free
	Encrypted       // the connection is encrypted from here on: it is left alone
	notes
)

var noteNames = [notes]string{"nothing", "altered", "expects", "foreign", "unreadable", "no_port", "encrypted"}

// String returns the note as counters name it.
func (n Note) String() string { return noteNames[min(n, notes-1)] }

// A Verdict is what is to be done about a line or datagram.
type Verdict struct {
	Note    Note
	Replace []byte // takes the place of the text; nil: it goes on as it is
	Expect  []Expectation
	Off     bool // nothing of the connection is read any more
}

// A Reader reads one connection.
type Reader interface {
	// Read is given a line with its end, or a datagram, which it does not keep.
	Read(dir Direction, text []byte) Verdict
	// Holds says whether a line that begins so may have to be altered, so that nothing of it may go on before its end is
	// there.
	Holds(dir Direction, begin []byte) bool
}

// A Module is a protocol.
type Module interface {
	// Begin makes the reader of a connection.
	Begin(c Conn) Reader
}

// Modules are those that there are, by the name in the configuration.
var Modules = map[string]Module{"ftp": FTP{}, "tftp": TFTP{}}
