package bridge_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/store"
)

// FuzzSnapshot gives a gateway any data instead of the snapshot that another gateway should have written. The gateway
// continues the conversation or rejects the caller, and the next conversation works.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(`{"Node":"a http://a.test","Config":{},"Handle":"h","Turn":3,"Known":2,"Speaking":2,"Asked":"and now?","Event":9,` +
		`"Said":[{"Role":"user","Content":"hello","Turn":1},{"Role":"model","Content":"Good day.","Turn":2}],` +
		`"Calls":[{"ID":"1","Name":"f","Args":{}}],"Received":["a"]}`))
	f.Add([]byte(`{"Node":"","Released":true,"Config":{"model":"x"},"Turn":-9,"Known":99,"Speaking":-1,"Event":18446744073709551615}`))
	f.Add(
		[]byte(
			`{"Node":"x","Agent":{"Voice":"Puck","Prompt":"x"},"Steered":[{"name":"f"}],"Started":"0001-01-01T00:00:00Z","Said":[{"Turn":-1}]}`,
		),
	)
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, value []byte) {
		const secret = "secret"
		id := strings.Repeat("A", 16)
		var fields map[string]any
		if json.Unmarshal(value, &fields) == nil && fields != nil { // the token must be valid, so that the test gets any further
			hash := sha256.Sum256([]byte(id + "." + secret))
			fields["Tokens"] = [2][]byte{hash[:], nil}
			value, _ = json.Marshal(fields)
		}
		runWithFakeClock(t, func(t *testing.T) {
			shared := store.NewMemory()
			if _, err := shared.CompareAndSwap(context.Background(), "session/"+id, 0, 1, value, time.Hour); err != nil {
				t.Fatal(err)
			}
			r := newHarness(t, func(o *bridge.Options) { o.Store, o.Node = shared, "b http://b.test" })
			r.up.SetFailure(0, errors.New("no route"))
			d := r.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: id + "." + secret})
			time.Sleep(time.Minute) // the gateway gives up after 30 s
			d.leave(nil)
			<-d.over
			r.up.SetFailure(0, nil)
			c, l := r.connectCaller(resumable)
			c.checkStillWorks(l)
		})
	})
}
