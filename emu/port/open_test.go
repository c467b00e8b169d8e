package port_test

import (
	"path/filepath"
	"testing"

	"splicenic/emu/port"
)

func TestOpen(t *testing.T) {
	in := capture(t, "in.pcap", shots(0))
	out := filepath.Join(t.TempDir(), "out.pcapng")
	for _, spec := range []string{"pcap:" + in + "," + out, "pcap:" + in, "pcap:" + in + ",", "pcap:," + out} {
		p, err := port.Open(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if err := p.Close(); err != nil {
			t.Errorf("%s: close: %v", spec, err)
		}
	}
	for _, tt := range []struct{ spec, want string }{
		{"", `open port "": no name`},
		{"mem", `open port "mem": a port in memory needs somebody at its other end`},
		{"pcap:", `open port "pcap:": want pcap:IN,OUT, two file names of which one may be empty`},
		{"pcap:a,b,c", `open port "pcap:a,b,c": want pcap:IN,OUT, two file names of which one may be empty`},
		{"vhost:x", `open port "vhost:x": unknown kind "vhost"; known are an interface's name, tap:NAME, pcap:IN,OUT and mem`},
	} {
		p, err := port.Open(tt.spec)
		if err == nil || err.Error() != tt.want || p != nil {
			t.Errorf("got  %v, %v\nwant %s", p, err, tt.want)
		}
	}
}
