package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"splicenic/runtime/view"
)

// forward are the words of ipvsadm for methods, and our own for those that it has not.
var forward = map[string]string{"nat": "Masq", "dr": "Route", "tun": "Tunnel", "fullnat": "FullNAT", "splice": "Splice"}

// IPVS writes services as ipvsadm -L -n does: each listener with all its servers.
func IPVS(w io.Writer, t view.Table) {
	ipvs(w, t, "Prot LocalAddress:Port Scheduler Flags", "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn", func(s *view.Service, listen string) string {
		return fmt.Sprintf("%s  %s %s%s", strings.ToUpper(s.Protocol), listen, scheduler(s), flags(s, listen))
	}, func(s *view.Service, x *view.ServiceServer, address string) string {
		method := x.Method
		if s.Mode == "splice" {
			method = "splice"
		}
		return fmt.Sprintf("  -> %-28s %-7s %-6d %-10d %d", address, forward[method], x.Weight, x.Active, x.Inactive)
	})
}

// IPVSStats writes them as ipvsadm -L -n --stats does.
func IPVSStats(w io.Writer, t view.Table) {
	row := func(first string, x view.Traffic) string {
		return first + large(x.Connections) + large(x.PacketsClient) + large(x.PacketsServer) + large(x.BytesClient) + large(x.BytesServer)
	}
	ipvs(w, t, fmt.Sprintf("%-33s %8s %8s %8s %8s %8s", "Prot LocalAddress:Port", "Conns", "InPkts", "OutPkts", "InBytes", "OutBytes"), "  -> RemoteAddress:Port", func(s *view.Service, listen string) string {
		return row(fmt.Sprintf("%-33s", strings.ToUpper(s.Protocol)+"  "+listen), s.Traffic)
	}, func(_ *view.Service, x *view.ServiceServer, address string) string {
		return row(fmt.Sprintf("  -> %-28s", address), x.Traffic)
	})
}

// IPVSRate writes them as ipvsadm -L -n --rate does.
func IPVSRate(w io.Writer, t view.Table) {
	row := func(first string, r *view.Rate) string {
		if r == nil {
			r = &view.Rate{}
		}
		for _, v := range []float64{r.Connections, r.PacketsClient, r.PacketsServer, r.BytesClient, r.BytesServer} {
			first += large(uint64(v + 0.5))
		}
		return first
	}
	ipvs(w, t, fmt.Sprintf("%-33s %8s %8s %8s %8s %8s", "Prot LocalAddress:Port", "CPS", "InPPS", "OutPPS", "InBPS", "OutBPS"), "  -> RemoteAddress:Port", func(s *view.Service, listen string) string {
		return row(fmt.Sprintf("%-33s", strings.ToUpper(s.Protocol)+"  "+listen), s.Rate)
	}, func(_ *view.Service, x *view.ServiceServer, address string) string {
		return row(fmt.Sprintf("  -> %-28s", address), x.Rate)
	})
}

// ipvs writes three lines of heading, and a line for each listener and each server.
func ipvs(w io.Writer, t view.Table, heading, below string, service func(s *view.Service, listen string) string, server func(s *view.Service, x *view.ServiceServer, address string) string) {
	fmt.Fprintf(w, "SpliceNIC virtual servers (size=%d)\n%s\n%s\n", t.Pages, heading, below)
	for i := range t.Services {
		s := &t.Services[i]
		for _, listen := range s.Listen {
			listen = zeroPort(listen)
			fmt.Fprintln(w, service(s, listen))
			seen := map[string]bool{} // of several groups a server may be in more than one
			for g := range s.Groups {
				for k := range s.Groups[g].Servers {
					if x := &s.Groups[g].Servers[k]; !seen[x.Address] {
						seen[x.Address] = true
						fmt.Fprintln(w, server(s, x, zeroPort(x.Address)))
					}
				}
			}
		}
	}
}

// zeroPort writes every port as ipvsadm does.
func zeroPort(address string) string {
	if a, ok := strings.CutSuffix(address, ":*"); ok {
		return a + ":0"
	}
	return address
}

// scheduler is that of the default group.
func scheduler(s *view.Service) string {
	if len(s.Groups) == 0 {
		return "-"
	}
	return s.Groups[0].Scheduler
}

// flags are what ipvsadm writes behind the scheduler: persistence, with its mask where that is not a whole address, and
// one-packet scheduling.
func flags(s *view.Service, listen string) string {
	text := ""
	if p := s.Persistence; p != nil {
		text = " persistent " + strconv.FormatFloat(p.Seconds, 'f', -1, 64)
		switch six := strings.HasPrefix(listen, "["); {
		case six && p.Netmask6 != 128:
			text += fmt.Sprintf(" mask %d", p.Netmask6)
		case !six && p.Netmask != 32:
			mask := ^uint32(0) << (32 - p.Netmask&31)
			text += fmt.Sprintf(" mask %d.%d.%d.%d", mask>>24, mask>>16&255, mask>>8&255, mask&255)
		}
	}
	if s.OnePacket {
		text += " ops"
	}
	return text
}

// large writes a number in nine columns, large ones with K, M, G or T behind them, as ipvsadm does.
func large(n uint64) string {
	for _, u := range []struct {
		below, factor uint64
		unit          string
	}{{1e8, 1, ""}, {1e9, 1e3, "K"}, {1e11, 1e6, "M"}, {1e14, 1e9, "G"}} {
		if n < u.below {
			return fmt.Sprintf("%9s", strconv.FormatUint(n/u.factor, 10)+u.unit)
		}
	}
	return fmt.Sprintf("%9s", strconv.FormatUint(n/1e12, 10)+"T")
}
