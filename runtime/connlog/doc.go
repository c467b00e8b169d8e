// Package connlog makes the log of connections: one line of JSON for each that ended, put together from the events of the
// card, written to a file that is rotated by size.
//
// A Log is the assembly: it takes events and gives lines, and knows neither files nor goroutines. It holds one small record
// for each live connection; a record whose end was never told makes its line when its page is used again. A Writer takes
// lines without waiting, and writes them in the goroutine of its Run: what the file does not take in time is dropped and
// counted, so that no disk ever holds up whoever has the lines.
//
// A line has no secrets that the package could know: of a request the method, the host and the path without its query, of
// a ClientHello the server name. It has no status: the card does not read what servers answer.
package connlog
