package main

import (
	"bytes"
	"os"
	"testing"
)

func TestStatesIsCurrent(t *testing.T) {
	got, err := os.ReadFile("../states.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, document()) {
		t.Error("states.md is not what the table says; run go generate ./emu/datapath")
	}
}
