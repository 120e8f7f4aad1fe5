package phone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/agents"
	"voxgate/tools"
	"voxgate/tools/digits"
	"voxgate/tools/webhook"
)

const (
	usualAttempts = 3
	usualSeconds  = 10
	maxSeconds    = 60
	// askTime is for the agent, which asks for the number once the collection is open.
	askTime = 20 * time.Second
	// deliveryTimeout bounds the request to the operator's endpoint.
	deliveryTimeout = 10 * time.Second
)

// Collection is a number that a caller enters by keys and that the model must not know.
type Collection struct {
	Name     string `json:"name"` // what agents call it: "card number"
	Min      int    `json:"min"`  // keys; 0: 1
	Max      int    `json:"max"`
	Check    string `json:"check"`    // luhn, iban:DE, date:ddmmyyyy; empty: none
	Attempts int    `json:"attempts"` // 0: 3
	Seconds  int    `json:"seconds"`  // until the next key; 0: 10
	URL      string `json:"url"`      // what is entered is sent there
	Secret   string `json:"secret"`   // what that is signed with (Standard Webhooks)

	right    func(digits string) bool
	endpoint *webhook.Endpoint
}

func (c *Collection) pause() time.Duration { return time.Duration(c.Seconds) * time.Second }

// firstPause is how long the first key may take.
func (c *Collection) firstPause() time.Duration { return askTime + c.pause() }

// press adds a key; done: the number has ended. * begins it anew.
func (c *Collection) press(keys []byte, key byte) (pressed []byte, done bool) {
	switch key {
	case '#':
		return keys, true
	case '*':
		return nil, false
	}
	keys = append(keys, key)
	return keys, len(keys) >= c.Max
}

func (c *Collection) valid(keys string) bool {
	return len(keys) >= c.Min && len(keys) <= c.Max && strings.Trim(keys, "0123456789") == "" && c.right(keys)
}

func (c *Collection) check() (err error) {
	if c.Min == 0 {
		c.Min = 1
	}
	switch {
	case c.Name == "":
		return errors.New("name: is missing")
	case c.Min < 0 || c.Max < c.Min || c.Max > MaxKeys:
		return fmt.Errorf("max: from %d to %d keys are not within 1 to %d", c.Min, c.Max, MaxKeys)
	case c.Seconds > maxSeconds:
		return fmt.Errorf("seconds: %d is more than %d", c.Seconds, maxSeconds)
	}
	if c.right = digits.Check(c.Check); c.right == nil || c.Check == "iban" { // keys have no letters
		return fmt.Errorf("check: %q is none of %s", c.Check, digits.Names)
	}
	if c.endpoint, err = webhook.NewEndpoint(c.URL, c.Secret); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	return CheckLimits(Limit{"attempts", &c.Attempts, usualAttempts}, Limit{"seconds", &c.Seconds, usualSeconds})
}

// Collections are those of a file.
type Collections []Collection

// Check reads what the file has, and says which field is wrong.
func (l Collections) Check() error {
	for i := range l {
		if err := l[i].check(); err != nil {
			return fmt.Errorf("collect[%d].%w", i, err)
		}
		if l.find(l[i].Name) != &l[i] {
			return fmt.Errorf("collect[%d].name: %q is another's", i, l[i].Name)
		}
	}
	return nil
}

// CheckAgent says what an agent collects that the file does not have.
func (l Collections) CheckAgent(a *agents.Agent) error {
	for i, name := range a.Collect {
		if l.find(name) == nil {
			return fmt.Errorf("collect[%d]: there is no %q in the file's collect", i, name)
		}
	}
	return nil
}

func (l Collections) find(name string) *Collection {
	i := slices.IndexFunc(l, func(c Collection) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &l[i]
}

// Close ends the connections that are idle.
func (l Collections) Close() {
	for _, c := range l {
		c.endpoint.Close()
	}
}

// Tools is the tool that has the caller enter what the agent may collect; pad is the keypad of the caller who is there now. What an agent
// names and the file does not have, since one of them was changed, cannot be collected.
func (l Collections) Tools(a *agents.Agent, pad func() *Keypad) []tools.Tool {
	known := slices.DeleteFunc(slices.Clone(a.Collect), func(name string) bool { return l.find(name) == nil })
	if len(known) == 0 {
		return nil
	}
	names, _ := json.Marshal(known) // strings can be written
	return []tools.Tool{{
		Declaration: tools.Declaration{
			Name: "collect_digits", Title: "Waiting for the keys…",
			Description: "Has the caller enter a number by the keys of their telephone, and # behind it. You do not learn the number, only " +
				"whether it is valid. Call this first, then ask for the number; never ask for it to be spoken. If it is not valid, call this again.",
			Parameters: json.RawMessage(
				`{"type":"object","required":["what"],"properties":{"what":{"type":"string","enum":` + string(names) + `}}}`),
			Behavior: tools.NonBlocking, Timeout: tools.MaxTimeout, Repeats: true,
		},
		Run: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			var a struct{ What string }
			if err := json.Unmarshal(args, &a); err != nil {
				return nil, fmt.Errorf("what must be a text: %w", err)
			}
			c := l.find(a.What)
			if c == nil {
				return nil, fmt.Errorf("%q cannot be collected", a.What)
			}
			result, err := pad().collect(ctx, c)
			if err != nil {
				return nil, err
			}
			return json.Marshal(result)
		},
	}}
}

var (
	errCollecting = errors.New("the caller is entering another number: wait until that is done")
	errGone       = errors.New("the caller is gone")
)

// collect has the caller enter a number once, and returns how that went, in words for the model.
func (p *Keypad) collect(ctx context.Context, c *Collection) (result string, err error) {
	select {
	case p.one <- struct{}{}:
		defer func() { <-p.one }()
	default:
		return "", errCollecting
	}
	e := &entry{of: c, keys: make(chan string, 1), over: make(chan time.Duration, 1)}
	rest := c.pause()
	select {
	case p.begin <- e:
	case <-p.gone:
		return "", errGone
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { e.over <- rest }()
	if p.failed[c] >= c.Attempts {
		rest = c.firstPause() // the agent asks all the same: what is entered is still a secret
		return gaveUp(c), nil
	}
	var keys string
	select {
	case keys = <-e.keys:
	case <-p.gone:
		return "", errGone
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	valid := c.valid(keys)
	if valid {
		if valid, err = c.deliver(ctx, keys); err != nil {
			p.log.Warn("keys not delivered", "collect", c.Name, "err", err)
			return "", errors.New("the number could not be delivered: this is not the caller's fault")
		}
	}
	switch {
	case valid:
		delete(p.failed, c)
		rest, result = afterSecret, "entered, valid"
	case keys == "":
		p.failed[c]++
		result = "timed out"
	default:
		p.failed[c]++
		result = "not valid"
	}
	if p.failed[c] >= c.Attempts {
		result = gaveUp(c)
	}
	p.log.Info("keys collected", "collect", c.Name, "result", result)
	return result, nil
}

func gaveUp(c *Collection) string {
	if c.Attempts == 1 {
		return "gave up after 1 attempt"
	}
	return fmt.Sprintf("gave up after %d attempts", c.Attempts)
}

// deliver sends what was entered to the operator's endpoint. Of the answer nothing is taken but whether it is valid: the rest may have the
// number in it.
func (c *Collection) deliver(ctx context.Context, number string) (valid bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	env := tools.EnvOf(ctx)
	status, answer, err := c.endpoint.Post(ctx, env.Session+"-"+env.Call, map[string]any{
		"type": "digits.collected", "id": env.Call, "name": c.Name, "digits": number, "session": env.Who,
	})
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("the webhook answered %d", status)
	}
	said := struct{ Valid *bool }{}
	_ = json.Unmarshal(answer, &said)
	return err == nil && (said.Valid == nil || *said.Valid), err
}
