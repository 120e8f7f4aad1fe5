package ua

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/signaling/phone"
)

// A stranger's connection is closed after a while, unless it has a call.
func TestConnectionWithoutCallTimeout(t *testing.T) {
	for _, calls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			places := make(chan struct{}, 1)
			conn, err := connLimiter{&phone.Acceptor{Listener: &once{conn: ours}, Unverified: places}}.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if calls {
				conn.(*unverifiedConn).markVerified()
			}
			began := time.Now()
			time.AfterFunc(time.Minute, func() { theirs.Close() })
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes came", n)
			}
			if took := time.Since(began); took != map[bool]time.Duration{false: StrangerTime, true: time.Minute}[calls] {
				t.Errorf("it has a call %v, and ends after %v", calls, took)
			}
			conn.Close()
			if len(places) > 0 {
				t.Error("it keeps its place")
			}
		})
	}
}

// once is a listener whose Accept always returns the same connection.
type once struct {
	net.Listener
	conn net.Conn
}

func (o *once) Accept() (net.Conn, error) { return o.conn, nil }
