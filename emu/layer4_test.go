package emu_test

import (
	"testing"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// TestStrictLayer4: a host that writes the tables of layer-4 services, has connections opened and reads what became of them
// does nothing that the map does not allow; stores to what the card keeps for itself are told.
func TestStrictLayer4(t *testing.T) {
	h := newHost(t, emu.Config{Strict: true}, port.MemConfig{})
	h.serve()
	h.entry(regs.MemLocalAddress, 0, 2, &regs.AddressEntry{ControlValid: 1, ControlKind: regs.KindIpv4, Address: [4]uint32{serverAddress + 80}})
	for i := range 4 {
		h.entry(regs.MemLocalPort, 0, i, &regs.LocalPortEntry{NumberPort: 1024 + uint32(i), NumberLocalAddress: 2})
	}
	h.entry(regs.MemServerState, 0, 0, &regs.ServerStateEntry{PortsSize: 4, PortsFree: 4, Upper: 9, Lower: 5})
	h.entry(regs.MemServer, 0, 0, &regs.ServerEntry{ControlValid: 1, ControlKind: regs.KindIpv4, ControlProtocol: 6, ControlPort: 8080, ControlMethod: regs.ServerControlMethodFullnat, Address: [4]uint32{serverAddress}})
	h.entry(regs.MemService, 0, 0, &regs.ServiceEntry{ControlValid: 1, ControlHasDefault: 1, ControlMode: regs.ServiceControlModeFullnat, ControlProtocol: regs.ServiceControlProtocolTcp, Persistence: 5000, PersistenceNetIpv4: 24})
	before, _ := h.card.Violations() // of the common set-up: none
	for i := range uint16(6) {
		h.send(0, syn(3000+i, 77).build(false), noOffload)
	}
	h.settle()
	if out := h.drain(); len(out) != 6 {
		t.Fatalf("%d frames", len(out))
	}
	done := h.command(regs.CommandEntry{ControlType: regs.CommandControlTypePass, FlagsTemplate: 1, KeyControlKind: regs.KindIpv4, KeyControlProtocol: 6, KeyPortsDestination: 2121, Value: clientAddress})
	if done.ControlStatus != regs.CompletionControlStatusOk {
		t.Errorf("pass: status %d", done.ControlStatus)
	}
	for r, want := range map[regs.Reg]uint64{regs.PassOpened: 4, regs.PassPortsTaken: 4, regs.PassDropNoPort: 2, regs.PassTemplateTaken: 2} {
		if got := h.load64(r); got != want {
			t.Errorf("%s = %d, want %d", r.Name(), got, want)
		}
	}
	p := make([]byte, 64)
	for _, m := range []int{regs.MemLocalPort, regs.MemServerState, regs.MemHalfOpenList, regs.MemLocalAddress} {
		if err := h.card.ReadRegion(device.Bar2, regs.Memories[m].At(0, 0), p); err != nil {
			t.Fatal(err)
		}
	}
	h.load(regs.AmuHalfOpen)
	if got, n := h.card.Violations(); n != uint64(len(before)) {
		t.Fatalf("violations of allowed accesses: %v", got)
	}
	h.store(regs.AmuHalfOpenHead, 1)
	h.store(regs.PassOpened, 1)
	got, n := h.card.Violations()
	want := []string{"store of 0x1 to amu.half_open_head: store to a read-only register", "store of 0x1 to pass.opened: store to a read-only register"}
	if n != uint64(len(before)+len(want)) {
		t.Fatalf("violations = %v", got)
	}
	for i, v := range got[len(before):] {
		if v.String() != want[i] {
			t.Errorf("violation %d = %q, want %q", i, v, want[i])
		}
	}
}
