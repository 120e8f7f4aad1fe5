package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"voxgate/bridge"
	"voxgate/internal/environment"
	"voxgate/internal/filewatch"
	"voxgate/tools"
)

// Privileges of a server key.
const (
	MayMint     = "tokens"       // mint session tokens
	MayWatch    = "sessions"     // list, watch, steer and end conversations begun in its name
	MayWatchAll = "sessions:all" // watch conversations of every key, and of telephones
	MayListen   = "listen"       // listen to the conversations that it may watch
	MayTalk     = "talk"         // open conversations itself, without a token
	MayCall     = "calls"        // place telephone calls
)

var privileges = []string{MayMint, MayWatch, MayWatchAll, MayListen, MayTalk, MayCall}

// keysFile is the content of the keys file.
type keysFile struct {
	Secret  string   `json:"secret"` // signs minted tokens: 32 random bytes in base64url
	Keys    []Key    `json:"keys"`
	Issuers []Issuer `json:"issuers,omitempty"` // external issuers, such as the backend, whose tokens are accepted
	// Proxy limits people whom a trusted proxy identifies by a header.
	Proxy Issuance `json:"proxy"`
}

// Key is a server key.
type Key struct {
	Name   string   `json:"name"`
	SHA256 string   `json:"sha256"` // of the key, in hex. The key has 256 random bits, so a slow hash would add nothing
	May    []string `json:"may"`
	Issuance
}

// Issuance limits what may be granted and spent in the name of a server key, an issuer or a trusted proxy.
type Issuance struct {
	Grant       Grant       `json:"grant"`              // maximum, and default, of a token's grant
	Sessions    int         `json:"sessions,omitempty"` // concurrent; 0 means use the limits
	DailyBudget             // of all identities together
	PerPerson   DailyBudget `json:"perPerson,omitzero"` // of each identity
}

// checkValues returns an error for a negative budget or an invalid grant.
func (i *Issuance) checkValues(field string) error {
	for where, day := range map[string]DailyBudget{"": i.DailyBudget, ".perPerson": i.PerPerson} {
		if day.TokensPerDay < 0 || day.DollarsPerDay < 0 {
			return fmt.Errorf("%s%s: the daily budget must not be negative", field, where)
		}
	}
	return i.Grant.checkValues(field + ".grant")
}

// DailyBudget is the budget of a day, from midnight to midnight UTC; 0 means no limit.
type DailyBudget struct {
	TokensPerDay  int     `json:"tokensPerDay,omitempty"` // of Gemini
	DollarsPerDay float64 `json:"dollarsPerDay,omitempty"`
}

func (d DailyBudget) cost() bridge.Cost {
	return bridge.Cost{Tokens: d.TokensPerDay, Micros: bridge.ToMicros(d.DollarsPerDay)}
}

// newAuthorization returns the authorization of a caller without a grant of its own: that of the Issuance applies.
func (i Issuance) newAuthorization(issuer, identity string) authorization {
	return authorization{
		identity: identity, grant: i.Grant, limited: true, issuer: issuer, sessions: i.Sessions,
		budget: i.DailyBudget.cost(), personBudget: i.PerPerson.cost(),
	}
}

func (k Key) hasPrivilege(privilege string) bool { return slices.Contains(k.May, privilege) }

// mayWatch reports whether the key may watch, steer and end a conversation.
func (k Key) mayWatch(origin bridge.Origin) bool {
	return k.hasPrivilege(MayWatchAll) || k.hasPrivilege(MayWatch) && k.Name == origin.Key
}

// keyPrefix begins each server key. People, and scanners for leaked secrets, recognize a key by it.
const keyPrefix = "vgk_"

// keyring holds the content of the current keys file.
type keyring struct {
	path string
	now  func() time.Time
	log  *slog.Logger

	watch *filewatch.Watch

	mu      sync.Mutex
	reads   int // number of reads begun
	file    keysFile
	secret  []byte
	issuers []*issuer
	cancel  context.CancelFunc // stops the issuers' background work
	closed  bool
}

func openKeyring(o Options) (*keyring, error) {
	k := &keyring{path: o.Keys, now: o.Now, log: o.Logger, cancel: func() {}}
	if k.path == "" {
		if o.Required {
			return nil, errors.New("keys: name a file by --keys, or nobody could come in; `gateway key new NAME` makes one")
		}
		return k, nil
	}
	k.watch = filewatch.NewWatch(o.Logger, k.now, k.watchedFiles())
	if err := k.reload(); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return k, nil
}

func (k *keyring) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.cancel()
}

func (k *keyring) isConfigured() bool { return k.path != "" }

func (k *keyring) watchedFiles() []string { return []string{k.path} }

// reloadIfChanged reads the keys file again if it has changed. It blocks until the issuers' keys are fetched. Until
// then the old content applies.
func (k *keyring) reloadIfChanged() {
	if !k.isConfigured() || !k.watch.TakeChange(k.watchedFiles) {
		return
	}
	if filewatch.IsStaleMount(k.path) {
		k.dropKeys()
		return
	}
	err := filewatch.CheckReloadable(k.path)
	if err == nil {
		err = k.reload()
	}
	if err != nil {
		k.log.Error("keys file changed but invalid; keeping the old one", "err", err)
	}
}

// dropKeys drops all keys and issuers. It is called if the file was replaced on the host in a way that the container's
// mount does not follow. Only a restart would mount the new file, and until then a key that was removed from it must
// not keep working.
func (k *keyring) dropKeys() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cancel()
	k.reads++
	k.file.Keys, k.file.Issuers, k.issuers, k.cancel = nil, nil, nil, func() {}
	k.log.Error("the keys file was replaced outside of its mount, so no key is accepted any more: restart, and mount its folder instead",
		"file", k.path)
}

// reload reads the file. If the file is invalid, the old content stays.
func (k *keyring) reload() error {
	k.mu.Lock()
	k.reads++
	read := k.reads
	k.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	f, secret, issuers, err := loadKeys(ctx, k.path, k.log)
	if err != nil {
		cancel()
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.reads != read { // the file has changed once more
		cancel()
		return nil
	}
	k.cancel()
	k.file, k.secret, k.issuers, k.cancel = f, secret, issuers, cancel
	return nil
}

// loadKeys reads a keys file and fetches the keys of its issuers. It keeps them up to date until ctx is done.
func loadKeys(ctx context.Context, path string, log *slog.Logger) (f keysFile, secret []byte, issuers []*issuer, err error) {
	if f, err = readKeysFile(path); err != nil {
		return f, nil, nil, err
	}
	if secret, err = f.expandAndValidate(); err != nil {
		return f, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	for n, i := range f.Issuers {
		made, err := newIssuer(ctx, i, log)
		if err != nil {
			return f, nil, nil, fmt.Errorf("%s: issuers[%d]: %w", path, n, err)
		}
		issuers = append(issuers, made)
	}
	f.warnOfUnknownProtocols(log)
	return f, secret, issuers, nil
}

// warnOfUnknownProtocols logs each unknown protocol in a grant, which may come from a file for an earlier version. Such
// a protocol allows nothing.
func (f *keysFile) warnOfUnknownProtocols(log *slog.Logger) {
	warn := func(at string, g Grant) {
		for i, pattern := range g.Protocols {
			if !isKnownProtocol(pattern) {
				log.Warn("unknown protocol in the grant of a keys file: it allows nothing", "at", fmt.Sprintf("%s.grant.doors[%d]", at, i),
					"protocol", pattern, "known", strings.Join(bridge.ProtocolNames(bridge.InGrants), ", "))
			}
		}
	}
	for i, key := range f.Keys {
		warn(fmt.Sprintf("keys[%d]", i), key.Grant)
	}
	for i, issuer := range f.Issuers {
		warn(fmt.Sprintf("issuers[%d]", i), issuer.Grant)
	}
	warn("proxy", f.Proxy.Grant)
}

// CheckKeys validates a keys file. It does not fetch the keys of issuers.
func CheckKeys(path string) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, _, err := loadKeys(ctx, path, slog.New(slog.DiscardHandler))
	return err
}

func readKeysFile(path string) (f keysFile, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := tools.ReadStrictJSON(raw, &f); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// expandVariable replaces a value of the form ${NAME} by the environment variable NAME. It leaves other values as they
// are. It returns an error if the variable is not set.
func expandVariable(field string, value *string) (err error) {
	name, ok := strings.CutPrefix(*value, "${")
	if !ok || !strings.HasSuffix(name, "}") {
		return nil
	}
	if *value, err = environment.Lookup(strings.TrimSuffix(name, "}")); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// expandAndValidate replaces references to environment variables in a keys file, and returns the decoded secret. It
// returns an error if the file is invalid.
func (f *keysFile) expandAndValidate() (secret []byte, err error) {
	if err := expandVariable("secret", &f.Secret); err != nil {
		return nil, err
	}
	secret, err = base64.RawURLEncoding.DecodeString(f.Secret)
	if err != nil || len(secret) < 32 {
		return nil, errors.New("secret is not 32 or more bytes in base64url; `gateway key new` makes one")
	}
	names := map[string]bool{"proxy": true} // reserved: its usage is counted by that name
	for i, k := range f.Keys {
		at := fmt.Sprintf("keys[%d]", i)
		if digest, err := hex.DecodeString(k.SHA256); err != nil || len(digest) != sha256.Size {
			return nil, fmt.Errorf("%s.sha256 is not 64 hexadecimal digits", at)
		}
		for _, m := range k.May {
			if !slices.Contains(privileges, m) {
				return nil, fmt.Errorf("%s.may has %q; there are %s", at, m, strings.Join(privileges, ", "))
			}
		}
		if err := k.checkValues(at); err != nil {
			return nil, err
		}
		if err := addUniqueName(at, k.Name, names); err != nil {
			return nil, err
		}
	}
	for i := range f.Issuers {
		issuer, at := &f.Issuers[i], fmt.Sprintf("issuers[%d]", i)
		if err := expandVariable(at+".key", &issuer.Key); err != nil {
			return nil, err
		}
		if err := addUniqueName(at, issuer.Name, names); err != nil {
			return nil, err
		}
		if err := issuer.checkValues(at); err != nil {
			return nil, err
		}
	}
	return secret, f.Proxy.checkValues("proxy")
}

// addUniqueName adds a name to names. It fails if the name is empty, a duplicate, or contains a space. Names with a
// space are reserved for the accounts of trunks ("sip lab").
func addUniqueName(field, name string, names map[string]bool) error {
	switch {
	case name == "" || names[name]:
		return fmt.Errorf("%s.name %q is empty or a duplicate", field, name)
	case strings.ContainsFunc(name, unicode.IsSpace):
		return fmt.Errorf("%s.name %q has a space in it", field, name)
	}
	names[name] = true
	return nil
}

// findKey returns the server key whose hash is that of presentedKey, which a client has sent. If there is none, the
// error is a [refusal].
func (k *keyring) findKey(presentedKey string) (Key, error) {
	if presentedKey == "" {
		return Key{}, &refusal{
			rule:    "no key",
			code:    bridge.CodeUnauthorized,
			message: "This endpoint requires a server key, as Authorization: Bearer.",
		}
	}
	k.reloadIfChanged()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.findKeyLocked(presentedKey)
}

// findKeyLocked is findKey for callers that hold mu. It does not read the file again.
func (k *keyring) findKeyLocked(presentedKey string) (Key, error) {
	digest := sha256.Sum256([]byte(presentedKey))
	hash := hex.EncodeToString(digest[:])
	for _, key := range k.file.Keys { // compare hashes, so that the time reveals nothing about the key
		if strings.EqualFold(key.SHA256, hash) {
			return key, nil
		}
	}
	return Key{}, &refusal{rule: "unknown key", code: bridge.CodeUnauthorized, message: "Unknown server key."}
}

// proxyAuthorization returns the authorization of a person identified by a trusted proxy.
func (k *keyring) proxyAuthorization(identity string) authorization {
	k.reloadIfChanged()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.file.Proxy.newAuthorization("proxy", identity)
}

// NewKey creates a server key and returns it. Only the key's hash is written into the keys file. If the file does not
// exist, it is created.
func NewKey(path, name string, may []string) (key string, err error) {
	for _, m := range may {
		if !slices.Contains(privileges, m) {
			return "", fmt.Errorf("a key may not %q; there are %s", m, strings.Join(privileges, ", "))
		}
	}
	if err := addUniqueName("the key", name, map[string]bool{"proxy": true}); err != nil {
		return "", err
	}
	var raw map[string]any // not keysFile: keep its contents, including ${NAME}
	switch text, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist):
		raw = map[string]any{"secret": randomKey(), "keys": []any{}}
	case err != nil:
		return "", err
	default:
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&raw); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	keys, _ := raw["keys"].([]any)
	for _, k := range keys {
		if k, ok := k.(map[string]any); ok && k["name"] == name {
			return "", fmt.Errorf("%s has a key of the name %q already", path, name)
		}
	}
	key = keyPrefix + randomKey()
	digest := sha256.Sum256([]byte(key))
	raw["keys"] = append(keys, map[string]any{"name": name, "sha256": hex.EncodeToString(digest[:]), "may": may, "grant": map[string]any{}})
	text, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return "", err
	}
	return key, replaceFile(path, append(text, '\n'))
}

// replaceFile replaces the content of a file in two steps. First it writes a temporary file, because that fails if the
// disk is full. Then it writes into the file itself instead of renaming the temporary one, because a container may have
// mounted the file.
//
// A gateway that reads in between finds invalid JSON. It keeps the old keys and reads again a second later.
func replaceFile(path string, text []byte) error {
	beside, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = beside.Write(text)
	if err := errors.Join(err, beside.Sync(), beside.Close()); err != nil {
		os.Remove(beside.Name())
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Rename(beside.Name(), path)
	}
	if err != nil {
		os.Remove(beside.Name())
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Truncate(int64(len(text))), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("%w; %s has what it should contain", err, beside.Name())
	}
	return os.Remove(beside.Name())
}

func randomKey() string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(secret)
}
