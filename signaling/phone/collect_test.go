package phone_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

// keypadHarness is a caller's keypad with the operator's webhook.
type keypadHarness struct {
	t             *testing.T
	pad           *phone.Keypad
	tool          tools.Tool
	webhookBodies chan string         // the request bodies that the webhook received
	commands      chan bridge.Command // to the model
	respond       func(http.ResponseWriter)
	stop          context.CancelFunc
	opened        chan struct{} // receives a value for each collection that has begun
}

func newKeypadHarness(t *testing.T, fields string) *keypadHarness {
	t.Helper()
	s := &keypadHarness{t: t, webhookBodies: make(chan string, 8), respond: func(http.ResponseWriter) {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.webhookBodies <- string(body)
		s.respond(w)
	}))
	t.Cleanup(server.Close)
	s.start(server.URL, fields)
	return s
}

// newBubbleHarness returns a harness for [synctest.Test], whose webhook cannot be reached.
func newBubbleHarness(t *testing.T, fields string) *keypadHarness {
	t.Helper()
	s := &keypadHarness{t: t}
	s.start("http://127.0.0.1:9/", fields)
	return s
}

func (k *keypadHarness) start(url, fields string) {
	t := k.t
	t.Helper()
	k.pad, k.commands, k.opened = phone.NewKeypad(), make(chan bridge.Command, 8), make(chan struct{}, 16)
	var list phone.Collections
	text := `[{"name":"number","seconds":1,"url":"` + url + `","secret":"s",` + fields + `}]`
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	agent := agents.Agent{Collect: []string{"number"}}
	if err := list.CheckAndSetDefaults(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(list.Close)
	k.tool = list.BuildTools(&agent, func() *phone.Keypad { return k.pad })[0]
	k.runKeypad()
}

func (k *keypadHarness) runKeypad() {
	ctx, cancel := context.WithCancel(k.t.Context())
	k.stop = cancel
	over := make(chan struct{})
	go func() {
		defer close(over)
		log := slog.New(slog.NewTextHandler(writer(func(b []byte) {
			if strings.Contains(string(b), "collecting keys") {
				k.opened <- struct{}{}
			}
		}), nil))
		k.pad.Run(ctx, log, 0, func(c bridge.Command) error { k.commands <- c; return nil })
	}()
	k.t.Cleanup(func() { cancel(); <-over })
}

func (k *keypadHarness) pressKeys(keys string) {
	for _, key := range keys {
		k.pad.PushKey(byte(key))
	}
}

// enterKeys presses keys once a collection is open.
func (k *keypadHarness) enterKeys(keys string) (string, error) {
	pressed := make(chan struct{})
	go func() {
		defer close(pressed)
		<-k.opened
		k.pressKeys(keys)
	}()
	defer func() { <-pressed }()
	return k.runCollection(k.t.Context())
}

func (k *keypadHarness) runCollection(ctx context.Context) (string, error) {
	ctx = tools.WithEnv(ctx, &tools.Env{Call: "c", SessionInfo: tools.SessionInfo{Session: "s"}})
	result, err := k.tool.Run(ctx, json.RawMessage(`{"what":"number"}`))
	return string(result), err
}

// The digits are sent to the operator's webhook if they pass the check, and the model learns the outcome.
func TestCollection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ fields, keys, want string }{
		"as long as may be":     {`"max":4`, "1234", "entered, valid"},
		"ended by #":            {`"max":9`, "1234#", "entered, valid"},
		"ended by a pause":      {`"max":9`, "1234", "entered, valid"},
		"begun anew":            {`"max":4`, "99*1234", "entered, valid"},
		"too short":             {`"min":5,"max":9`, "1234#", "not valid"},
		"letters":               {`"max":4`, "12A4", "not valid"},
		"one attempt":           {`"min":4,"max":4,"attempts":1`, "12#", "gave up after 1 attempt"},
		"a card":                {`"max":19,"check":"luhn"`, "4012888888881881#", "entered, valid"},
		"a wrong card":          {`"max":19,"check":"luhn"`, "4012888888881882#", "not valid"},
		"an account":            {`"max":20,"check":"iban:DE"`, "89370400440532013000", "entered, valid"},
		"a wrong account":       {`"max":20,"check":"iban:DE"`, "89370400440532013001", "not valid"},
		"another country's":     {`"max":20,"check":"iban:AT"`, "89370400440532013000", "not valid"},
		"a date":                {`"max":8,"check":"date:ddmmyyyy"`, "29022024", "entered, valid"},
		"no date":               {`"max":8,"check":"date:ddmmyyyy"`, "29022023", "not valid"},
		"the end of a card":     {`"max":4,"check":"date:mmyy"`, "1229", "entered, valid"},
		"a month that is none":  {`"max":4,"check":"date:mmyy"`, "1329", "not valid"},
		"a date in US notation": {`"max":8,"check":"date:mmddyyyy"`, "02292024", "entered, valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newKeypadHarness(t, test.fields)
			result, err := s.enterKeys(test.keys)
			if err != nil || result != `"`+test.want+`"` {
				t.Errorf("%s, %v", result, err)
			}
			select {
			case body := <-s.webhookBodies:
				digits := strings.Trim(test.keys[strings.Index(test.keys, "*")+1:], "#")
				if !strings.Contains(body, `"digits":"`+digits+`"`) || test.want != "entered, valid" {
					t.Errorf("the endpoint got %s", body)
				}
			default:
				if test.want == "entered, valid" {
					t.Error("the endpoint got nothing")
				}
			}
		})
	}
}

// The webhook's response decides, too, and none of its content reaches the model.
func TestCollectionWebhook(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status     int
		body, want string
	}{
		"says no":         {200, `{"valid":false,"digits":"1234"}`, `"not valid"`},
		"says yes":        {200, `{"valid":true,"digits":"1234"}`, `"entered, valid"`},
		"says other":      {200, `1234`, `"entered, valid"`},
		"fails":           {500, `{"error":"1234 is unknown"}`, ""},
		"sends elsewhere": {307, `1234`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newKeypadHarness(t, `"max":4`)
			s.respond = func(w http.ResponseWriter) {
				w.Header().Set("Location", "/1234")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}
			result, err := s.enterKeys("1234")
			if result != test.want || (err == nil) != (test.want != "") || err != nil && strings.Contains(err.Error(), "1234") {
				t.Errorf("%s, %v", result, err)
			}
		})
	}
}

// An unfinished collection ends without effect, and keys that are still pressed do not reach the model.
func TestUnfinishedCollections(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"cancelled": tools.ErrCancelled, "hung up": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { checkCollectionEnd(t, want) })
		})
	}
}

// checkCollectionEnd cancels a collection for a reason, or hangs up if there is none.
func checkCollectionEnd(t *testing.T, why error) {
	s := newBubbleHarness(t, `"max":16`)
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.runCollection(ctx)
		failed <- err
	}()
	synctest.Wait()
	if _, err := s.runCollection(t.Context()); err == nil || !strings.Contains(err.Error(), "another number") {
		t.Errorf("a second collection: %v", err)
	}
	s.pressKeys("123")
	synctest.Wait()
	if why == nil {
		s.stop()
	}
	cancel(why)
	if err := <-failed; err == nil || why != nil && !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	s.pressKeys("456")
	time.Sleep(1500 * time.Millisecond) // longer than keyGap, and than keys stay secret
	s.expectKeys("")
	if why == nil {
		return
	}
	s.pressKeys("7#")
	s.expectKeys("7#")
}

// The agent has 20 s to ask for a number; after that the timeout per key applies. After the last attempt keys stay secret for as long, and
// are dropped.
func TestCollectionTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleHarness(t, `"max":4,"attempts":4`)
		try := func(waits, want string, keys ...string) {
			t.Helper()
			begun := time.Now()
			go func() {
				for _, key := range keys {
					time.Sleep(900 * time.Millisecond)
					s.pressKeys(key)
				}
			}()
			result, err := s.runCollection(t.Context())
			if took := time.Since(begun); result != `"`+want+`"` || err != nil || took.String() != waits {
				t.Errorf("%s, %v after %v, not %s after %s", result, err, took, want, waits)
			}
		}
		s.pressKeys("9*A") // pressed just before the collection: * clears it
		synctest.Wait()
		try("1s", "not valid")
		try("21s", "timed out")
		try("2.8s", "not valid", "A", "1")
		time.AfterFunc(20500*time.Millisecond, func() { s.pressKeys("12A4") })
		try("20.5s", "gave up after 4 attempts")
		time.Sleep(time.Minute)
		try("0s", "gave up after 4 attempts")
		for range 5 {
			time.Sleep(20 * time.Second)
			s.pressKeys("5")
		}
		time.Sleep(time.Minute)
		s.expectKeys("")
		s.pressKeys("7#")
		s.expectKeys("7#")
	})
}

// Secret keys stay secret when another call takes over the conversation.
func TestSecretKeysAfterTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBubbleHarness(t, `"max":16`)
		go func() { _, _ = s.runCollection(t.Context()) }()
		synctest.Wait()
		s.pressKeys("123")
		synctest.Wait()
		s.stop()
		synctest.Wait()
		old := s.pad
		s.pad = phone.NewKeypad()
		s.pad.InheritSecret(old)
		s.runKeypad()
		s.pressKeys("456#")
		s.expectKeys("")
		time.Sleep(30 * time.Second)
		s.expectKeys("")
		s.pressKeys("7#")
		s.expectKeys("7#")
	})
}

// expectKeys checks which keys the model gets.
func (k *keypadHarness) expectKeys(want string) {
	k.t.Helper()
	synctest.Wait()
	select {
	case c := <-k.commands:
		if want == "" || !strings.HasSuffix(c.(bridge.Message).Text, ": "+want) {
			k.t.Errorf("the model gets %v, not %q", c, want)
		}
	default:
		if want != "" {
			k.t.Errorf("the model does not get %s", want)
		}
	}
}

func TestInvalidCollections(t *testing.T) {
	good := map[string]any{"name": "PIN", "max": 4, "url": "https://example.com/", "secret": "s"}
	for want, change := range map[string]func(map[string]any){
		"collect[0].name: is missing":               func(c map[string]any) { delete(c, "name") },
		"collect[0].max: from 1 to 0":               func(c map[string]any) { delete(c, "max") },
		"collect[0].max: from 5 to 4":               func(c map[string]any) { c["min"] = 5 },
		"collect[0].max: from 1 to 65":              func(c map[string]any) { c["max"] = 65 },
		"collect[0].check: \"iban\" must be one of": func(c map[string]any) { c["check"] = "iban" },
		"collect[0].seconds: 61":                    func(c map[string]any) { c["seconds"] = 61 },
		"collect[0].attempts: must not be negative": func(c map[string]any) { c["attempts"] = -1 },
		"collect[0].url: must be":                   func(c map[string]any) { c["url"] = "" },
		"collect[0]: there":                         func(c map[string]any) { c["name"] = "card" },
	} {
		c := map[string]any{}
		for k, v := range good {
			c[k] = v
		}
		change(c)
		text, _ := json.Marshal([]any{c})
		var list phone.Collections
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		err := cmp.Or(list.CheckAndSetDefaults(), list.CheckAgent(&agents.Agent{Name: "desk", Collect: []string{"PIN"}}))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
