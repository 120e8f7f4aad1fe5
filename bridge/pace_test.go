package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// server is a fake Gemini that handles each dial by its number, counted from 1.
type server struct {
	dials atomic.Int64

	mu   sync.Mutex
	dial dialled
	open []*websocket.Conn
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	dial := s.dial
	s.mu.Unlock()
	dial(s, int(s.dials.Add(1)), w, r)
}

// setDial sets the function that handles the next dials.
func (s *server) setDial(dial dialled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dial = dial
}

// dialled handles one dial of a server.
type dialled func(s *server, n int, w http.ResponseWriter, r *http.Request)

// refuseDial returns a function that answers the upgrade with an HTTP status.
func refuseDial(status int, body string, header ...string) dialled {
	return func(_ *server, _ int, w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// upgraded accepts a WebSocket, reads the setup, and then calls talk.
func upgraded(talk func(ws *websocket.Conn, model string)) dialled {
	return func(s *server, _ int, w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.open = append(s.open, ws)
		s.mu.Unlock()
		defer ws.Close()
		var first struct{ Setup struct{ Model string } }
		if ws.ReadJSON(&first) == nil {
			talk(ws, first.Setup.Model)
		}
	}
}

func send(ws *websocket.Conn, message string) {
	_ = ws.WriteMessage(websocket.BinaryMessage, []byte(message))
}

// readOn reads until the connection ends.
func readOn(ws *websocket.Conn) {
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			return
		}
	}
}

func closeWith(ws *websocket.Conn, code int, reason string) {
	if code == websocket.CloseAbnormalClosure {
		_ = ws.NetConn().Close()
		return
	}
	_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
}

var (
	hangs = upgraded(func(ws *websocket.Conn, _ string) { readOn(ws) })
	good  = upgraded(func(ws *websocket.Conn, _ string) { send(ws, `{"setupComplete":{}}`); readOn(ws) })
)

// late completes the setup after a delay.
func late(after time.Duration) dialled {
	return upgraded(func(ws *websocket.Conn, _ string) {
		time.Sleep(after)
		send(ws, `{"setupComplete":{}}`)
		readOn(ws)
	})
}

// closed ends the connection at a moment.
func closed(moment string, code int, reason string) dialled {
	return upgraded(func(ws *websocket.Conn, _ string) {
		if moment != "before the set-up" {
			send(ws, `{"setupComplete":{}}`)
			send(ws, `{"sessionResumptionUpdate":{"newHandle":"h","resumable":true}}`)
		}
		switch moment {
		case "in mid-voice":
			send(ws, `{"serverContent":{`+bridgetest.VoiceField(7, time.Second)+`}}`)
			time.Sleep(300 * time.Millisecond)
		case "idle":
			time.Sleep(3 * time.Second)
		}
		closeWith(ws, code, reason)
	})
}

// each handles the dials with the functions of the list in turn.
func each(list ...dialled) dialled {
	return func(s *server, n int, w http.ResponseWriter, r *http.Request) { list[(n-1)%len(list)](s, n, w, r) }
}

// badServers returns servers that fail at once or after a short time, by description.
func badServers() map[string]dialled {
	list := map[string]dialled{
		"accepts and hangs":      hangs,
		"set up after 5 s":       late(5 * time.Second),
		"set up after 15 s":      late(15 * time.Second),
		"every other dial":       each(refuseDial(503, ""), good),
		"every third dial":       each(hangs, refuseDial(500, ""), good),
		"good, then closed":      each(good, closed("right after the set-up", 1011, "")),
		"429 without more":       refuseDial(429, ""),
		"429, seconds":           refuseDial(429, "", "Retry-After", "17"),
		"429, a date":            refuseDial(429, "", "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"),
		"429, garbage":           refuseDial(429, "", "Retry-After", "soon"),
		"429, below zero":        refuseDial(429, "", "Retry-After", "-5"),
		"429, huge":              refuseDial(429, "", "Retry-After", "99999999999999999999"),
		"429, RetryInfo":         refuseDial(429, `{"error":{"code":429,"details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"45s"}]}}`),
		"503, seconds":           refuseDial(503, "", "Retry-After", "17"),
		"503, huge":              refuseDial(503, "", "Retry-After", "99999999999999999999"),
		"500":                    refuseDial(500, "<html>"),
		"502":                    refuseDial(502, ""),
		"403":                    refuseDial(403, ""),
		"401":                    refuseDial(401, ""),
		"404":                    refuseDial(404, ""),
		"400, quota":             refuseDial(400, "Quota exceeded for quota metric"),
		"200":                    refuseDial(200, "hello"),
		"302":                    refuseDial(302, "", "Location", "http://gemini.test/elsewhere"),
		"cut instead of upgrade": func(_ *server, _ int, w http.ResponseWriter, _ *http.Request) { hijackAndClose(w) },
	}
	for _, moment := range []string{"before the set-up", "right after the set-up", "in mid-voice", "idle"} {
		for _, code := range []int{1000, 1001, 1006, 1007, 1008, 1011, 1012, 1013, 4000, 4999} {
			list[fmt.Sprintf("closed %d %s", code, moment)] = closed(moment, code, "")
		}
		list["quota "+moment] = closed(moment, 1011, "You exceeded your current quota. Please retry in 45s.")
		list["exhausted "+moment] = closed(moment, 1008, "RESOURCE_EXHAUSTED")
		list["error quota "+moment] = upgraded(func(ws *websocket.Conn, _ string) {
			if moment != "before the set-up" {
				send(ws, `{"setupComplete":{}}`)
			}
			send(ws, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow down"}}`)
			readOn(ws)
		})
	}
	return list
}

func hijackAndClose(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// serving starts a host that uses the server as its Gemini.
func (s *server) serving(t *testing.T) *harness {
	pipes := bridgetest.NewPipeNetwork()
	pipes.ServeUntilEnd(t, s, func() {
		s.mu.Lock()
		for _, ws := range s.open {
			_ = ws.Close()
		}
		s.mu.Unlock()
	})
	r := &harness{t: t}
	r.startHost(pipes.Dial)
	return r
}

// requestOfUser returns the session request of user i.
func requestOfUser(i int, config string) bridge.SessionRequest {
	return bridge.SessionRequest{Origin: bridge.Origin{Identity: fmt.Sprint("person ", i)}, Config: json.RawMessage(config)}
}

// describeState returns the state of a conversation: ended with a code, waiting and informed, or well.
func (c *caller) describeState() string {
	select {
	case <-c.over:
		if e := bridge.AsError(c.err); e != nil {
			return "ended " + string(e.Code)
		}
		return "ended"
	default:
	}
	if states, _ := findEvents[bridge.StateChange](c); len(states) > 0 {
		return fmt.Sprint(states[len(states)-1])
	}
	return "nothing"
}

// mostDials returns the maximum of dials of n conversations in a minute, with a server that accepts all dials or none. Each
// conversation has its backoff. Connections that end right after the setup share a pace: after the first replacement of
// each, 20 at once and 20 a second.
func mostDials(n int, name string) int64 {
	if strings.HasPrefix(name, "closed") && !strings.Contains(name, "before") || strings.HasPrefix(name, "good") {
		return int64(min(80*n, 2*n+20+60*20))
	}
	return int64(3 * n) // the conversation ends, and the person is informed
}

// crowded holds the names of the servers for the tests with many conversations, by the number of conversations.
var crowded = map[int][]string{
	20:  {"every other dial", "good, then closed", "429, seconds", "500", "closed 1001 right after the set-up"},
	200: {"503, seconds"},
}

// TestConversationsPaceTheirDials runs conversations of many people with every kind of failing server. They dial at most as
// often as documented, every waiting person is informed, and nothing is spent. All are served when the server works again.
func TestConversationsPaceTheirDials(t *testing.T) {
	for name, dial := range badServers() {
		for _, n := range []int{1, 20, 200} {
			if n > 1 && !slices.Contains(crowded[n], name) { // the others take long
				continue
			}
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				runWithFakeClock(t, func(t *testing.T) {
					s := &server{dial: dial}
					r := s.serving(t)
					bills := make([]bill, n)
					var callers []*caller
					for i := range n {
						o := requestOfUser(i, `{}`)
						bills[i].Account = bridge.Unlimited
						o.Account = billOf{&bills[i], o.Origin.Identity}
						callers = append(callers, r.startCaller(o))
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					if dials := s.dials.Load(); dials > mostDials(n, name) {
						t.Errorf("%d dials in a minute, %d are allowed", dials, mostDials(n, name))
					}
					for i, c := range callers {
						told := c.describeState()
						state, _, _ := strings.Cut(strings.Trim(told, "{"), " ")
						if !slices.Contains([]string{"ended", "live", "resuming", "reseeding"}, state) {
							t.Errorf("caller %d was told %q", i, told)
						}
						c.leave(nil)
					}
					s.setDial(good)
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					if slices.ContainsFunc(bills, func(b bill) bool { return b.spent != 0 }) {
						t.Errorf("tokens were counted: %v", bills)
					}
					for _, who := range []int{0, n} { // a person who was rejected, and another person
						c := r.startCaller(requestOfUser(who, `{}`))
						time.Sleep(time.Second)
						if told := c.describeState(); !strings.Contains(told, "live") {
							t.Errorf("person %d is told %q by a server that is well again", who, told)
						}
					}
				})
			})
		}
	}
}

// billOf is the account of one person.
type billOf struct {
	*bill
	person string
}

func (b billOf) Caller() string { return b.person }

// TestARefusalIsForItsOwnOnly checks that the refusal of one model, one configuration or the first users does not affect
// the others.
func TestARefusalIsForItsOwnOnly(t *testing.T) {
	const other = `{"model":"gemini-2.5-flash-native-audio-latest"}`
	const quota = "You exceeded your current quota."
	ofModel := func(part string, code int, reason string) dialled {
		return upgraded(func(ws *websocket.Conn, model string) {
			if strings.Contains(model, part) {
				closeWith(ws, code, reason)
				return
			}
			send(ws, `{"setupComplete":{}}`)
			readOn(ws)
		})
	}
	type asked struct {
		who    int
		config string
		want   string
		dials  int64
	}
	for name, test := range map[string]struct {
		dial dialled
		asks []asked
	}{
		"quota of another model": {ofModel("2.5", 1011, quota), []asked{
			{1, other, "ended busy", 1},
			{1, other, "ended busy", 0}, // only that person has to wait
			{2, other, "ended busy", 1},
			{3, other, "ended busy", 0}, // all have to wait
			{3, `{}`, "live", 1},
			{1, `{}`, "live", 1},
		}},
		"quota of the default model": {ofModel("3.", 1011, quota), []asked{
			{1, `{}`, "ended busy", 1},
			{2, `{}`, "ended busy", 0},
			{1, other, "live", 1},
			{2, other, "live", 1},
		}},
		"a model that does not exist": {ofModel("2.5", 1008, "models/x is not found"), []asked{
			{1, other, "ended refused", 1},
			{2, other, "ended refused", 1},
			{1, `{}`, "live", 1},
		}},
		"a model that is broken": {ofModel("2.5", 1011, "Internal error encountered."), []asked{
			{1, other, "ended connection_failed", 3},
			{1, `{}`, "live", 1},
			{2, `{}`, "live", 1},
		}},
		"a model without permission": {ofModel("2.5", 1008, "PERMISSION_DENIED"), []asked{
			{1, other, "ended authentication_failed", 1},
			{1, `{}`, "live", 1},
		}},
		"overloaded for a while": {each(refuseDial(503, "", "Retry-After", "17"), good), []asked{
			{1, `{}`, "ended connection_failed", 1},
			{2, `{}`, "live", 1},
		}},
		"overloaded for a moment": {each(refuseDial(503, "", "Retry-After", "1"), good), []asked{
			{1, `{}`, "live", 2},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				s := &server{dial: test.dial}
				r := s.serving(t)
				for i, ask := range test.asks {
					before := s.dials.Load()
					c := r.startCaller(requestOfUser(ask.who, ask.config))
					time.Sleep(2 * time.Second)
					if told := c.describeState(); !strings.Contains(told, ask.want) || s.dials.Load()-before != ask.dials {
						t.Errorf("ask %d: %q after %d dials, want %q after %d", i, told, s.dials.Load()-before, ask.want, ask.dials)
					}
				}
			})
		})
	}
}

// TestRunningConversationsWaitAsAsked makes the server refuse every dial after the first, with a delay. The conversation dials
// again after that delay, and once more before it ends.
func TestRunningConversationsWaitAsAsked(t *testing.T) {
	// Without a delay the pauses are random: up to 2 s, 1 s on average.
	for delay, most := range map[string]int64{"0": 64, "1": 32, "9": 5, "20": 3, "600": 3, "99999999999999999": 3} {
		for _, status := range []int{429, 503} {
			t.Run(fmt.Sprint(status, " ", delay), func(t *testing.T) {
				runWithFakeClock(t, func(t *testing.T) {
					first := closed("idle", 1001, "")
					s := &server{dial: func(s *server, n int, w http.ResponseWriter, r *http.Request) {
						if n == 1 {
							first(s, n, w, r)
							return
						}
						refuseDial(status, "", "Retry-After", delay)(s, n, w, r)
					}}
					c := s.serving(t).startCaller(requestOfUser(1, `{}`))
					time.Sleep(40 * time.Second)
					if told := c.describeState(); !strings.HasPrefix(told, "ended ") {
						t.Errorf("told %q", told)
					}
					if dials := s.dials.Load(); dials < 2 || dials > most {
						t.Errorf("%d dials, at most %d are allowed", dials, most)
					}
				})
			})
		}
	}
}
