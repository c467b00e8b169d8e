// Package show writes what a card or its runtime answered as text for a person. Its types name the parts of the answers
// of /v1 that the text needs; the JSON form of a command is the answer itself.
package show
