package ua

import (
	"sync"
	"time"
)

// core holds the transport, the gate and the limits for all calls and registrations.
type core struct {
	*transport
	gate     *gate
	refusals *refusals
	names    nameCache // cached addresses of hosts in route sets
	timeout  time.Duration
	closing  chan struct{} // closed when the user agent closes and no new call may begin
	running  sync.WaitGroup
}
