//go:build race

package vfiousertest_test

const raceEnabled = true // the race detector allocates
