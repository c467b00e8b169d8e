package connlog

import "time"

// A Line is what the log says about a connection. Times are counted from the client's SYN; one is null where it did not
// happen, or was not seen.
type Line struct {
	Time    time.Time `json:"time"` // of the client's SYN
	ID      string    `json:"id"`   // n.generation, as others show it
	Client  string    `json:"client"`
	VIP     string    `json:"vip"`
	Service string    `json:"service"`
	Rule    *uint32   `json:"rule"`   // the index of the rule that matched; null: the default, or none
	Match   string    `json:"match"`  // what the rule asks for
	Server  string    `json:"server"` // empty: none was chosen
	Head    *Head     `json:"head"`   // null: not known

	PacketsClient uint32 `json:"packets_client"`
	PacketsServer uint32 `json:"packets_server"`
	BytesClient   uint64 `json:"bytes_client"`
	BytesServer   uint64 `json:"bytes_server"`

	HandshakeMS *uint32 `json:"handshake_ms"`  // the client's handshake was complete
	SpliceMS    *uint32 `json:"splice_ms"`     // the server's was, and the request went to it
	FirstByteMS *uint32 `json:"first_byte_ms"` // the server's first payload
	DurationMS  *uint32 `json:"duration_ms"`

	End     string `json:"end"`     // the reason of the closed event; Unseen: there was none
	Partial bool   `json:"partial"` // its begin was not seen: Time is that of its end, or of when it was found
}

// Unseen is the end of a connection whose closed event was lost.
const Unseen = "unseen"

// A Head is what the log says about a request or a ClientHello.
type Head struct {
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
	Path   string `json:"path,omitempty"` // without the query, as the client wrote it
	SNI    string `json:"sni,omitempty"`
	Cut    bool   `json:"cut,omitempty"` // there was more than the log keeps
}
