// Package head reads request heads and ClientHellos on the host and makes the bytes that servers and clients get in their
// place: altered heads, PROXY headers, answers and alerts.
//
// It is the second parser of heads in this module, on purpose. The card reads every head itself, in a hot path that
// allocates nothing and copies nothing (emu/urltable); the runtime may not import the card, and there need not be such a
// card in this machine. What the host alters, answers or matches it therefore reads again, plainly, with strings and
// the standard library. Two readings that were written apart check each other: tests hold that both accept the same
// heads and hellos and find the same host, path and names in them, since a head on which they differ is one that two
// servers could read in two ways.
//
// A head is read strictly by RFC 9112: lines end with CRLF; folded lines, space before the colon, a missing or second Host,
// several lengths and any transfer coding but chunked alone are refused. Paths are compared in the form that rules have:
// percent-decoded but for "%2F" and "%25", without dot segments; unlike in the card any number of segments deep. Empty
// lines before the request line (four at most) belong to the head and stay.
//
// Altering leaves every byte it has no reason to touch: fields keep their order, their spelling and their spaces. See Alter
// for what becomes of Connection, Forwarded and X-Forwarded-For.
//
// Nothing here keeps state, starts goroutines or keeps bytes it was given. Input is hostile: sizes are checked against
// MaxHead and MaxHello before anything is allocated by them, and every error is an *Error with the status or alert that
// tells the client.
package head
