package sip

// Kept is how many addresses the library has a connection for.
func (d *Door) Kept() int { return d.agent.TransportLayer().Pool("udp").Size() }
