// Package config reads the configuration file: strict YAML into a checked Config.
//
// Strict means that an unknown or repeated key, a value of the wrong type and a contradiction between two places are
// errors, and that all of them are reported at once, each with file, line, column, key and, for a misspelt word, the
// nearest one that exists. A key or value that other releases know but this one lacks is refused as not supported yet.
// Anchors, aliases, merge keys and tags are not part of the language.
//
// A Config that Load returns is consistent in itself; whether a card has room for it is the daemon's question. It is
// plain data: nothing here touches a card, a network or the clock.
package config
