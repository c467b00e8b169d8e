// Package admin answers requests about a card and its runtime: HTTP and JSON below /v1, over a UNIX socket.
//
// Handler answers for a runtime, or for a bare card that nobody drives. Listen takes the socket so that only one runtime
// holds it and nothing else is ever removed; Serve answers on it. Only root and the user that runs the runtime may
// connect. Every answer is one JSON document; an error says what failed, where, why, what to do, and which exit code a
// command that asked should end with.
package admin
