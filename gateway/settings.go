package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/pricing"
	"voxgate/media/opus"
	"voxgate/media/smartturn"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/store"
)

// settings holds everything an operator can configure: flags with environment variables. A test compares them with
// docs/settings.md.
type settings struct {
	addr       string
	webrtcHost string // IP address of WebRTC; "": the host of addr, or all addresses if addr is on the loopback
	udpPort    int    // UDP port of WebRTC (0: the port number of addr)
	tcpPort    int    // port of ICE-TCP (0: none)
	publicIPs  []string
	iceServers []signaling.ICEServer
	turnSecret string // secret for TURN servers that have no credentials in iceServers
	tls        tlsSettings
	origins    []signaling.Origin
	hosts      []string // in the form that signaling.ParseHost returns
	insecure   bool

	sessionWebhook, webhookSecret string

	auth        string // off, token, or "": token if there are keys
	access      access.Options
	limits      []string // as written by the operator
	park        time.Duration
	drain       time.Duration
	stall       time.Duration
	maxTokens   int
	recordings  string // folder for recordings; "": nothing is recorded
	recordAll   bool
	calls       string // folder for call files; "": none are written
	keep        int    // age in days at which recordings and call files are deleted (0: never)
	privateAddr string // address of the private listener; "": none
	redis       string // URL of the Redis that gateways share; "": none
	redisSecret string
	nodeURL     string // URL at which other gateways reach this one, or ""
	log         logFormat
	models      string // models file: geminirest.ReadRoutes; or ""
	prices      pricing.Table
	findings    map[string]liveconfig.Findings
	restAddr    string
	appModel    string
	tools       string // file of the operator's tools, or ""
	agents      string // folder of agents, or ""
	opusDecoder opus.DecoderChoice
	turnModel   string               // file of the end-of-turn model, or ""
	onnxRuntime string               // library file of ONNX Runtime; "" only without turnModel
	turnCPU     float64              // processor cores for the end-of-turn model
	protocols   []signaling.Protocol // the protocols, which add settings of their own
	unknown     []string             // a sentence for each environment variable that looks like a setting but is none

	// These settings come from the environment variables of Google's SDKs. They have no flags, because every user of the
	// machine could see the key on the command line.
	apiKey   api.Secret // API key, or an ephemeral token
	baseURL  string     // base URL of Gemini API or Vertex AI; "": Google's
	vertex   bool
	project  string // Google Cloud project, for Vertex AI
	location string // region of Vertex AI; "": Google's default
}

// vertexProject returns the project on Vertex AI, or "" if the Gemini API or the emulator answers.
func (s *settings) vertexProject() string {
	if s.vertex {
		return s.project
	}
	return ""
}

// newFlagSet returns the flags of all settings. The environment variable of flag udp-port is VOXGATE_UDP_PORT.
func (s *settings) newFlagSet(stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("gateway serve", flag.ContinueOnError)
	f.SetOutput(stderr)
	s.addr = "127.0.0.1:3001"
	f.Var((*listenAddress)(&s.addr), "addr", "`host:port` of the page and the WebSocket")
	f.StringVar(&s.webrtcHost, "webrtc-host", "", "`address` where WebRTC listens; empty: the host of addr, or any if that is the loopback")
	f.IntVar(&s.udpPort, "udp-port", 0, "UDP `port` of all WebRTC calls; 0: the port of addr")
	f.IntVar(&s.tcpPort, "tcp-port", 0, "TCP `port` for WebRTC where UDP is blocked; 0: none")
	f.Func("public-ip", "`address`es for WebRTC clients instead of the local ones, comma separated",
		parseList(&s.publicIPs, func(v string) (string, error) {
			if net.ParseIP(v) == nil {
				return "", fmt.Errorf("%q is not an IP address", v)
			}
			return v, nil
		}))
	f.Func("ice-servers", "STUN and TURN servers for clients: `URLs`, comma separated, or a JSON array of RTCIceServer",
		func(v string) (err error) {
			s.iceServers, err = signaling.ParseICEServers(v)
			return err
		})
	f.StringVar(&s.turnSecret, "turn-secret", "",
		"`secret` shared with the TURN servers of ice-servers that have no credentials (coturn's static-auth-secret)")
	s.tls.addFlags(f)
	f.Func("origins", "`origins` whose pages may connect besides our own, comma separated", parseList(&s.origins, signaling.ParseOrigin))
	f.Func("hosts", "`names` that the gateway is reached by besides localhost, comma separated", parseList(&s.hosts, signaling.ParseHost))
	f.Func("auth", "off, or token: every conversation needs a token (the default if keys is set)", s.parseAuth)
	f.StringVar(&s.access.Keys, "keys", "", "JSON `file` of the server keys and of trusted token issuers (docs/access.md); empty: none")
	f.Func("limits", "`limits` that differ from the defaults, as sessions=1000, comma separated (docs/access.md)",
		parseList(&s.limits, func(v string) (string, error) { return v, s.access.Limits.ParseLimit(v) }))
	f.Func("trusted-proxies", "`addresses` (CIDR) that may name the client they forward for, comma separated",
		parseList(&s.access.Proxies, parseProxy))
	f.StringVar(&s.access.IdentityHeader, "identity-header", "",
		"request `header` with which a trusted proxy names the person; empty: none")
	f.StringVar(&s.sessionWebhook, "session-webhook", "",
		"`URL` that admits each conversation and receives its end (docs/sideband.md); empty: none")
	f.StringVar(&s.webhookSecret, "webhook-secret", "",
		"`secret` that signs its messages; set it by the environment, because other users can see a command line")
	f.BoolVar(&s.insecure, "insecure", false, "listen on a public address without authentication: everyone can talk at your expense")
	f.DurationVar(&s.park, "park", time.Minute, "how long a resumable conversation waits for a client that lost its connection; 0: not at all")
	f.DurationVar(&s.drain, "drain", time.Minute, "how long conversations may go on after SIGTERM; a second one ends them; 0: not at all")
	f.DurationVar(&s.stall, "stall", 6*time.Second,
		"how long Gemini may be silent when an answer is due, before the gateway asks again or reconnects; 0: forever")
	f.IntVar(&s.maxTokens, "max-session-tokens", 0, "`tokens` after which a conversation ends with a goodbye; 0: no limit")
	f.StringVar(&s.recordings, "recordings", "", "`folder` for recordings of the conversations that ask for one; empty: no recordings")
	f.BoolVar(&s.recordAll, "record-all", false, "record every conversation")
	f.Float64Var(&s.turnCPU, "turn-cpu", smartturn.DefaultCPU, "`cores` that the model of turn-model may use")
	f.StringVar(&s.calls, "calls", "",
		"`folder` for a JSON file of each ended conversation, with its transcript (docs/sideband.md); empty: none")
	f.IntVar(&s.keep, "keep", 0, "`days` after which recordings and call files are deleted; 0: never")
	f.Var((*listenAddress)(&s.privateAddr), "private-addr",
		"`host:port` for the operator: their page, /metrics, /healthz, /readyz, /debug/pprof/ (docs/operating.md); empty: none")
	f.StringVar(&s.redis, "redis", "", "`URL` of the Redis that several gateways share (docs/scaling.md); empty: a single gateway")
	f.StringVar(&s.redisSecret, "redis-secret", "",
		"`secret` shared by these gateways, from which the encryption key of their data in Redis is derived; "+
			"set it by the environment, because other users can see a command line")
	f.Func(
		"node-url",
		"`URL` by which these gateways reach this one, as http://10.0.0.5:3001, "+
			"for the sideband and calls of OpenAI's clients and WHIP's; empty: that of addr, if that is one address without TLS",
		s.parseNodeURL,
	)
	f.Func("log", "format of the log: text or json; text,debug and json,debug log more", s.parseLog)
	s.addFileFlags(f)
	s.protocols = protocols()
	for _, p := range s.protocols {
		if p.AddFlags != nil {
			p.AddFlags(f)
		}
	}
	f.Var((*listenAddress)(&s.restAddr), "rest-addr", "`host:port` of the REST API besides that of addr; empty: none")
	f.StringVar(&s.appModel, "app-model", "gemini-3.8-flash",
		"`model` that writes the apps of the VOX assistant, and the outcomes of conversations")
	f.Func("opus-decoder", "libopus, or pion: pure Go, so that no C code parses untrusted data", func(v string) (err error) {
		s.opusDecoder, err = opus.ParseDecoderChoice(v)
		return err
	})
	return f
}

// addFileFlags adds the flags that name the operator's files and folders.
func (s *settings) addFileFlags(f *flag.FlagSet) {
	f.StringVar(&s.tools, "tools", "", "JSON `file` of the tools that every conversation has; empty: only those of its client")
	f.StringVar(&s.agents, "agents", "", "`folder` of the agents, a file each, that answer by every protocol (docs/agents.md); empty: none")
	f.StringVar(
		&s.models,
		"models",
		"",
		"JSON `file` of the backends that answer REST calls, by model (docs/rest.md); empty: the backend of calls",
	)
	f.Func(
		"google-report",
		"report `file` of gateway check google: its findings replace assumptions about Google's servers; empty: none",
		func(v string) (err error) {
			s.findings, err = readFindings(v)
			return err
		},
	)
	f.StringVar(&s.turnModel, "turn-model", "",
		"ONNX `file` of smart-turn v3, which judges the ends of turns that the gateway decides (docs/turns.md); empty: none")
	f.StringVar(&s.onnxRuntime, "onnxruntime", "", "`file` of the library of ONNX Runtime, which runs the model of turn-model")
	f.Func("prices", "JSON `file` of what models cost (docs/cost.md); empty: Google's prices, as of this release", func(v string) (err error) {
		s.prices, err = pricing.ReadFile(v)
		return err
	})
}

func (s *settings) parseNodeURL(v string) error {
	if scheme, rest, ok := strings.Cut(v, "://"); ok {
		host, path, _ := strings.Cut(rest, "/")
		v = scheme + "://" + bracketIPv6(host)
		if path != "" {
			v += "/" + path
		}
	}
	if u, err := url.Parse(v); err != nil || v != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "") {
		return fmt.Errorf("%q is not a URL like http://10.0.0.5:3001", v)
	}
	s.nodeURL = v
	return nil
}

func (s *settings) parseAuth(v string) error {
	if v != "off" && v != "token" {
		return fmt.Errorf("%q is neither off nor token", v)
	}
	s.auth = v
	return nil
}

func (s *settings) parseLog(v string) error {
	format, more, _ := strings.Cut(v, ",")
	if format != "text" && format != "json" || more != "" && more != "debug" {
		return fmt.Errorf("%q must be text, json, text,debug or json,debug", v)
	}
	s.log = logFormat{json: format == "json", debug: more == "debug"}
	return nil
}

// parseSettings reads the environment and then the flags. A flag overrides its environment variable.
func parseSettings(args []string, environ variables, stderr io.Writer) (settings, error) {
	s := settings{prices: pricing.Default}
	environ, err := environ.filterAndClean()
	if err != nil {
		return s, err
	}
	f := s.newFlagSet(stderr)
	var errs []error
	if environ["VOXGATE_WHIP"] != "" {
		errs = append(errs, errors.New("VOXGATE_WHIP: agents are files of their own now, in the folder of VOXGATE_AGENTS: docs/agents.md"))
	}
	names := []string{"VOXGATE_WHIP"}
	f.VisitAll(func(f *flag.Flag) {
		names = append(names, envName(f.Name))
		if v := environ[envName(f.Name)]; v != "" {
			if err := f.Value.Set(v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", envName(f.Name), explainParseError(f, v, err)))
			}
		}
	})
	s.unknown = environ.findUnknown(names)
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err := s.readGoogleVariables(environ); err != nil {
		return s, err
	}
	s.access.Required = s.auth == "token" || s.auth == "" && s.access.Keys != ""
	return s, s.validate()
}

// explainParseError replaces the text "parse error" of package flag by a description of the expected value.
func explainParseError(f *flag.Flag, value string, err error) error {
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return err
	}
	switch getter.Get().(type) {
	case time.Duration:
		if _, bad := strconv.Atoi(value); bad == nil {
			return fmt.Errorf("%q is not a duration: add a unit, like %ss", value, value)
		}
		return fmt.Errorf("%q is not a duration like 90s or 1m30s", value)
	case int:
		return fmt.Errorf("%q is not a whole number", value)
	case float64:
		return fmt.Errorf("%q is not a number", value)
	case bool:
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return err
}

// readGoogleVariables reads the environment variables of Google's SDKs.
func (s *settings) readGoogleVariables(environ variables) error {
	s.apiKey = api.Secret(cmp.Or(environ["GEMINI_API_KEY"], environ["GOOGLE_API_KEY"]))
	for _, name := range []string{"GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"} { // the first variable that is set decides
		switch v := strings.ToLower(environ[name]); v {
		case "":
			continue
		case "1", "true":
			s.vertex = true
		case "0", "false":
		default:
			return fmt.Errorf("%s: %q is neither true nor false", name, v)
		}
		break
	}
	if !s.vertex {
		s.baseURL = environ["GOOGLE_GEMINI_BASE_URL"]
		return nil
	}
	s.baseURL = environ["GOOGLE_VERTEX_BASE_URL"]
	s.project = environ["GOOGLE_CLOUD_PROJECT"]
	s.location = cmp.Or(environ["GOOGLE_CLOUD_LOCATION"], environ["GOOGLE_CLOUD_REGION"])
	if s.project == "" {
		return fmt.Errorf("%w: set GOOGLE_CLOUD_PROJECT, or unset GOOGLE_GENAI_USE_VERTEXAI", api.ErrNoProject)
	}
	return nil
}

func (s *settings) validate() error {
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		return fmt.Errorf("addr: %q is not host:port", s.addr)
	}
	for name, p := range map[string]int{"udp-port": s.udpPort, "tcp-port": s.tcpPort} {
		if p < 0 || p > 65535 {
			return fmt.Errorf("%s: %d is not a port number", name, p)
		}
	}
	if s.restAddr != "" {
		restHost, _, err := net.SplitHostPort(s.restAddr)
		if err != nil {
			return fmt.Errorf("rest-addr: %w", err)
		}
		if isLoopback(host) && !isLoopback(restHost) {
			host = restHost // check the address that is reachable from outside
		}
	}
	if !s.access.Required && !s.insecure && !isLoopback(host) {
		return fmt.Errorf("addr %s can be reached from outside, and everyone there could talk at your expense: "+
			"set --keys (VOXGATE_KEYS) to a file of keys, or allow it by --insecure (VOXGATE_INSECURE=1)", s.addr)
	}
	if s.access.IdentityHeader != "" && len(s.access.Proxies) == 0 {
		return errors.New("identity-header: also set --trusted-proxies; otherwise every client could send the header")
	}
	if s.turnSecret == "" && slices.ContainsFunc(s.iceServers, signaling.ICEServer.NeedsSecret) {
		return errors.New("ice-servers: a TURN server needs credentials: set VOXGATE_TURN_SECRET, or add them in the JSON form")
	}
	if s.webrtcHost != "" && net.ParseIP(s.webrtcHost) == nil {
		return fmt.Errorf("webrtc-host: %q is not an IP address", s.webrtcHost)
	}
	if err := s.checkAddresses(); err != nil {
		return err
	}
	if err := s.tls.validate(); err != nil {
		return err
	}
	if s.park < 0 || s.drain < 0 {
		return errors.New("park, drain: must not be negative")
	}
	if s.stall < 0 || s.stall > 0 && s.stall < time.Second {
		return fmt.Errorf("stall: %v must be 0 or at least 1s", s.stall)
	}
	if err := s.checkFolders(); err != nil {
		return err
	}
	if s.sessionWebhook != "" && s.webhookSecret == "" {
		return errors.New("session-webhook: set VOXGATE_WEBHOOK_SECRET, which signs its messages")
	}
	if s.redis != "" && len(s.redisSecret) < store.MinSecret {
		return fmt.Errorf(
			"redis: set VOXGATE_REDIS_SECRET, which encrypts the data there: the same at all gateways, at least %d bytes",
			store.MinSecret,
		)
	}
	if s.maxTokens < 0 {
		return errors.New("max-session-tokens: must not be negative")
	}
	return s.checkTurnModel()
}

// checkTurnModel checks the settings of the end-of-turn model. The files are opened later.
func (s *settings) checkTurnModel() error {
	switch {
	case s.turnModel != "" && s.onnxRuntime == "":
		return errors.New("turn-model: set VOXGATE_ONNXRUNTIME as well, the library that runs it (make turn-model)")
	case s.turnModel == "" && s.onnxRuntime != "":
		return errors.New("onnxruntime: set VOXGATE_TURN_MODEL as well, the model that it runs (make turn-model)")
	case !(s.turnCPU > 0): // true for NaN, too
		return fmt.Errorf("turn-cpu: %v must be more than 0", s.turnCPU)
	}
	return nil
}

// maxKeep caps --keep (days). With many more days, the computed date would wrap around into the future, and all files would be deleted.
const maxKeep = 1_000_000

// checkFolders checks the folders for recordings and call files.
func (s *settings) checkFolders() error {
	if s.recordings == "" && s.recordAll {
		return errors.New("record-all: name a folder by --recordings")
	}
	if s.keep < 0 || s.keep > maxKeep {
		return fmt.Errorf("keep: %d must be from 0 to %d (days)", s.keep, maxKeep)
	}
	for name, path := range map[string]string{"recordings": s.recordings, "calls": s.calls} {
		if path == "" {
			continue
		}
		if folder, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		} else if !folder.IsDir() {
			return fmt.Errorf("%s: %s is not a folder", name, path)
		}
	}
	return nil
}

// checkAddresses returns an error if two settings name the same TCP port.
func (s *settings) checkAddresses() error {
	host, port, _ := net.SplitHostPort(s.addr)
	tcp := ""
	if tcpPort := strconv.Itoa(s.tcpPort); s.tcpPort != 0 && (tcpPort != port || s.webrtcHost != "") { // equal ports are shared
		tcp = net.JoinHostPort(cmp.Or(s.webrtcHost, host), tcpPort)
	}
	type listener struct{ name, addr string }
	list := []listener{{"addr", s.addr}, {"private-addr", s.privateAddr}, {"rest-addr", s.restAddr}, {"tcp-port", tcp}}
	for i, a := range list {
		for _, b := range list[:i] {
			if addressesOverlap(a.addr, b.addr) {
				return fmt.Errorf("%s: %s is taken by %s, %s", a.name, a.addr, b.name, b.addr)
			}
		}
	}
	return nil
}
