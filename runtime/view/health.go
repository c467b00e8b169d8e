package view

// Health is how much of a group serves, by its health checks.
type Health struct {
	Check      string         `json:"check"`  // type of the check; none: nobody asks its servers
	Weight     uint64         `json:"weight"` // of the servers that are up
	Quorum     uint64         `json:"quorum"` // the least weight with which they serve
	Hysteresis uint64         `json:"hysteresis"`
	Lost       bool           `json:"lost"`    // it has no quorum
	Serving    string         `json:"serving"` // the group whose servers serve, or the answer that is given instead
	Servers    []ServerHealth `json:"servers"` // that are asked, those without slots included
}

// ServerHealth is a server of a group, as its check finds it.
type ServerHealth struct {
	Address string `json:"address"`
	State   string `json:"state"`    // up or down
	SinceMS int64  `json:"since_ms"` // that it is
	Result  string `json:"result"`   // of the last check; empty: there was none
	AgeMS   int64  `json:"age_ms"`   // since it ended
	Streak  int    `json:"streak"`   // results in a row that say the contrary of the state
	Rises   uint64 `json:"rises"`    // times it came up
	Falls   uint64 `json:"falls"`    // times it went down
	Passed  uint64 `json:"passed"`   // checks
	Failed  uint64 `json:"failed"`   // checks
}

// Stats are the health as statistics name it.
func (h *Health) Stats() Stats {
	servers := Stats{}
	for _, s := range h.Servers {
		servers[s.Address] = Stats{"state": s.State, "since_ms": s.SinceMS, "result": s.Result, "rises": s.Rises, "falls": s.Falls, "passed": s.Passed, "failed": s.Failed}
	}
	return Stats{"weight": h.Weight, "quorum": h.Quorum, "lost": h.Lost, "serving": h.Serving, "servers": servers}
}

// state sums up what the groups that have a server say about it: up where one does; empty where nobody asks it.
func (n *Names) state(address string) (state string) {
	for _, h := range n.Health {
		for _, s := range h.Servers {
			if s.Address == address && state != "up" {
				state = s.State
			}
		}
	}
	return state
}
