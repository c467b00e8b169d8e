//go:build !race

package vfiousertest_test

const raceEnabled = false
