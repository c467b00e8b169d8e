//go:build !race

package vfiouser_test

const raceEnabled = false
