// Package ruletest says, without a card, which rule of a configuration takes a request and why each other one does not. A
// request is a head, a ClientHello, or what a capture holds of either; heads are read and matched by the code with which the
// runtime decides in the card's place.
package ruletest
