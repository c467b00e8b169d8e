package datapath

// wrap sends a packet, whose inner bytes are final, toward a server by its tunnel.
func (c *Core) wrap(p *packet, s, hop []uint32, out *Output) { c.emitHop(p, hop, out) }

// overhead is how many bytes the tunnel of a server takes of a path's MTU.
func (c *Core) overhead(s []uint32) uint32 { return 0 }
