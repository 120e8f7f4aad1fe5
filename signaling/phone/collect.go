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
	defaultAttempts = 3
	defaultSeconds  = 10
	maxSeconds      = 60
	// promptTime is added to the time that the caller has for the first key, because the agent asks for the number only
	// after the collection has begun.
	promptTime = 20 * time.Second
	// deliveryTimeout limits the request that delivers the number to the operator's webhook.
	deliveryTimeout = 10 * time.Second
)

// Collection describes a number that the caller enters by keys and that the model must not learn.
type Collection struct {
	Name     string `json:"name"` // name that agents use for the collection: "card number"
	Min      int    `json:"min"`  // minimum number of keys; default 1
	Max      int    `json:"max"`
	Check    string `json:"check"`    // luhn, iban:DE or date:ddmmyyyy; no check if empty
	Attempts int    `json:"attempts"` // default 3
	Seconds  int    `json:"seconds"`  // longest wait for the next key; default 10
	URL      string `json:"url"`      // webhook that receives the digits
	Secret   string `json:"secret"`   // signs the webhook (Standard Webhooks)

	hasValidChecksum func(digits string) bool
	endpoint         *webhook.Endpoint
}

func (c *Collection) keyTimeout() time.Duration { return time.Duration(c.Seconds) * time.Second }

// firstKeyTimeout returns how long to wait for the first key.
func (c *Collection) firstKeyTimeout() time.Duration { return promptTime + c.keyTimeout() }

// addKey appends a key and reports whether the number is complete. "*" clears the number.
func (c *Collection) addKey(keys []byte, key byte) (pressed []byte, isComplete bool) {
	switch key {
	case '#':
		return keys, true
	case '*':
		return nil, false
	}
	keys = append(keys, key)
	return keys, len(keys) >= c.Max
}

func (c *Collection) isValid(keys string) bool {
	return len(keys) >= c.Min && len(keys) <= c.Max && strings.Trim(keys, "0123456789") == "" && c.hasValidChecksum(keys)
}

func (c *Collection) checkAndSetDefaults() (err error) {
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
	// "iban" alone is rejected, because a keypad cannot enter the letters of the country. "iban:DE" is valid.
	if c.hasValidChecksum = digits.FindCheck(c.Check); c.hasValidChecksum == nil || c.Check == "iban" {
		return fmt.Errorf("check: %q must be one of %s", c.Check, digits.Names)
	}
	if c.endpoint, err = webhook.NewEndpoint(c.URL, c.Secret); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	return SetLimitDefaults(Limit{"attempts", &c.Attempts, defaultAttempts}, Limit{"seconds", &c.Seconds, defaultSeconds})
}

// Collections lists the collections of a configuration file.
type Collections []Collection

// CheckAndSetDefaults validates all collections and fills in defaults. Its errors begin with the path of the field.
func (cs Collections) CheckAndSetDefaults() error {
	for i := range cs {
		if err := cs[i].checkAndSetDefaults(); err != nil {
			return fmt.Errorf("collect[%d].%w", i, err)
		}
		if cs.findCollection(cs[i].Name) != &cs[i] {
			return fmt.Errorf("collect[%d].name: %q is the name of another collection", i, cs[i].Name)
		}
	}
	return nil
}

// CheckAgent returns an error if an agent names a collection that is not configured.
func (cs Collections) CheckAgent(a *agents.Agent) error {
	for i, name := range a.Collect {
		if cs.findCollection(name) == nil {
			return fmt.Errorf("collect[%d]: there is no %q in the file's collect", i, name)
		}
	}
	return nil
}

// findCollection returns the collection with this name, or nil.
func (cs Collections) findCollection(name string) *Collection {
	i := slices.IndexFunc(cs, func(c Collection) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &cs[i]
}

// Close closes idle connections to the webhooks.
func (cs Collections) Close() {
	for _, c := range cs {
		c.endpoint.Close()
	}
}

// BuildTools returns the collect_digits tool for the collections of an agent. pad returns the keypad of the current
// caller. Collections that are no longer configured are left out.
func (cs Collections) BuildTools(a *agents.Agent, pad func() *Keypad) []tools.Tool {
	available := slices.DeleteFunc(slices.Clone(a.Collect), func(name string) bool { return cs.findCollection(name) == nil })
	if len(available) == 0 {
		return nil
	}
	names, _ := json.Marshal(available) // strings always marshal
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
			c := cs.findCollection(a.What)
			if c == nil {
				return nil, fmt.Errorf("%q cannot be collected", a.What)
			}
			result, err := pad().collectDigits(ctx, c)
			if err != nil {
				return nil, err
			}
			return json.Marshal(result)
		},
	}}
}

var (
	errCollecting = errors.New("the caller is entering another number: wait until that is done")
	errHungUp     = errors.New("the caller is gone")
)

// collectDigits collects one number, and returns the outcome in words for the model. It blocks until the number is
// entered, the time for it is over, the caller has hung up, or ctx is done. After too many failed attempts it gives up
// at once.
func (k *Keypad) collectDigits(ctx context.Context, c *Collection) (result string, err error) {
	select {
	case k.busy <- struct{}{}:
		defer func() { <-k.busy }()
	default:
		return "", errCollecting
	}
	e := &pendingEntry{collection: c, keys: make(chan string, 1), done: make(chan time.Duration, 1)}
	secretFor := c.keyTimeout()
	select {
	case k.entries <- e:
	case <-k.stopped:
		return "", errHungUp
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { e.done <- secretFor }()
	if k.failures[c] >= c.Attempts {
		secretFor = c.firstKeyTimeout() // the agent may still have asked for the number, so keys stay secret for as long as a first key may take
		return gaveUpResult(c), nil
	}
	var keys string
	select {
	case keys = <-e.keys:
	case <-k.stopped:
		return "", errHungUp
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	valid := c.isValid(keys)
	if valid {
		if valid, err = c.postDigits(ctx, keys); err != nil {
			k.log.Warn("keys not delivered", "collect", c.Name, "err", err)
			return "", errors.New("the number could not be delivered: this is not the caller's fault")
		}
	}
	switch {
	case valid:
		delete(k.failures, c)
		secretFor, result = secretTail, "entered, valid"
	case keys == "":
		k.failures[c]++
		result = "timed out"
	default:
		k.failures[c]++
		result = "not valid"
	}
	if k.failures[c] >= c.Attempts {
		result = gaveUpResult(c)
	}
	k.log.Info("keys collected", "collect", c.Name, "result", result)
	return result, nil
}

func gaveUpResult(c *Collection) string {
	if c.Attempts == 1 {
		return "gave up after 1 attempt"
	}
	return fmt.Sprintf("gave up after %d attempts", c.Attempts)
}

// postDigits sends the digits to the webhook. The number is valid unless the response has "valid": false. Other fields
// of the response are ignored, because they could contain the number.
func (c *Collection) postDigits(ctx context.Context, number string) (valid bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	env := tools.EnvOf(ctx)
	status, answer, err := c.endpoint.Post(ctx, env.Session+"-"+env.Call, map[string]any{
		"type": "digits.collected", "id": env.Call, "name": c.Name, "digits": number, "session": env.SessionInfo,
	})
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("the webhook answered %d", status)
	}
	reply := struct{ Valid *bool }{}
	_ = json.Unmarshal(answer, &reply)
	return err == nil && (reply.Valid == nil || *reply.Valid), err
}
