package show

import (
	"fmt"
	"io"
	"strings"

	"splicenic/runtime/dns"
)

// Zone writes a zone as it is served, in the form of a zone file: what is said about it stands in comments.
func Zone(w io.Writer, v dns.Shown) {
	where := v.Listen
	if where == "" {
		where = "nowhere"
	}
	fmt.Fprintf(w, "; zone %s, ttl %d s, answered at %s", v.Zone, v.TTL, where)
	if v.File != "" {
		fmt.Fprintf(w, ", written to %s", v.File)
	}
	fmt.Fprintln(w)
	for _, t := range v.Troubles {
		fmt.Fprintln(w, "; TROUBLE:", t)
	}
	for _, p := range v.Peers {
		state := "does not answer: its VIPs are out"
		if p.Alive {
			state = "lives and serves " + strings.Join(p.Live, ", ")
			if len(p.Live) == 0 {
				state = "lives and serves nothing"
			}
		}
		fmt.Fprintf(w, "; peer %s %s\n", p.Address, state)
	}
	if !v.Known {
		fmt.Fprintln(w, "; the health of the services is not known yet: every question is answered with SERVFAIL")
		return
	}
	fmt.Fprint(w, v.Text)
}
