package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/price"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/store"
)

// settings are what two deployments may need different. Each is a flag with an environment variable behind it; the table
// in docs/settings.md is compared with them by a test.
type settings struct {
	addr       string
	webrtcHost string // "": the host of addr, or any if that is the loopback
	udpPort    int    // 0: the port of addr
	tcpPort    int    // 0: no ICE-TCP
	publicIPs  []string
	iceServers []signaling.ICEServer
	turnSecret string // of those without credentials
	tls        tlsSettings
	origins    []signaling.Origin
	hosts      []string // as signaling.ParseHost returns them
	insecure   bool

	sessionWebhook, webhookSecret string

	auth        string // "", off or token
	access      access.Options
	limits      []string // as they were written
	park        time.Duration
	drain       time.Duration
	stall       time.Duration
	maxTokens   int
	recordings  string // a folder; "": nothing is recorded
	recordAll   bool
	calls       string // a folder; "": none
	keep        int    // days; 0: for ever
	privateAddr string // "": no private listener
	redis       string // URL; "": this gateway is alone
	redisSecret string
	nodeURL     string // by which other gateways reach this one; "": they do not
	log         logFormat
	models      string // a file
	prices      price.Table
	findings    map[string]setup.Findings
	restAddr    string
	workspace   string // a folder; "": no apps are generated
	appModel    string
	sip         string // file
	tools       string // a file; "": none but the clients' own
	telephony   string // a file; "": no calls of telephony providers
	agents      string // a folder; "": there are no agents
	opusDecoder opus.DecoderChoice
	unknown     []string // what is wrong with variables that look like settings and are none

	// Google's own names, environment only: a key on a command line is seen by every user of the machine.
	apiKey   api.Secret // or an ephemeral token
	baseURL  string     // of the backend that is used
	vertex   bool
	project  string // on Vertex AI
	location string // "" is Google's default
}

// flags lists the settings. The environment variable of flag udp-port is VOXGATE_UDP_PORT.
func (s *settings) flags(stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("gateway serve", flag.ContinueOnError)
	f.SetOutput(stderr)
	s.addr = "127.0.0.1:3001"
	f.Var((*listenAddress)(&s.addr), "addr", "`host:port` of the page and the WebSocket")
	f.StringVar(&s.webrtcHost, "webrtc-host", "", "`address` where WebRTC listens; empty: the host of addr, or any if that is the loopback")
	f.IntVar(&s.udpPort, "udp-port", 0, "UDP `port` of all WebRTC calls; 0: the port of addr")
	f.IntVar(&s.tcpPort, "tcp-port", 0, "TCP `port` for WebRTC where UDP is blocked; 0: none")
	f.Func("public-ip", "`address`es for WebRTC clients instead of the local ones, comma separated",
		list(&s.publicIPs, func(v string) (string, error) {
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
	s.tls.flags(f)
	f.Func("origins", "`origins` whose pages may connect besides our own, comma separated", list(&s.origins, signaling.ParseOrigin))
	f.Func("hosts", "`names` that the gateway is reached by besides localhost, comma separated", list(&s.hosts, signaling.ParseHost))
	f.Func("auth", "off, or token: nobody talks without a token (the default where there are keys)", s.parseAuth)
	f.StringVar(&s.access.Keys, "keys", "", "JSON `file` of the server keys, and of whose tokens count (docs/access.md); empty: none")
	f.Func("limits", "`limits` that differ from the defaults, as sessions=1000, comma separated (docs/access.md)",
		list(&s.limits, func(v string) (string, error) { return v, s.access.Limits.ParseLimit(v) }))
	f.Func("trusted-proxies", "`addresses` (CIDR) that may name the client they forward for, comma separated",
		list(&s.access.Proxies, parseProxy))
	f.StringVar(&s.access.IdentityHeader, "identity-header", "",
		"request `header` by which a trusted proxy says who the person is; empty: none")
	f.StringVar(&s.sessionWebhook, "session-webhook", "",
		"`URL` that is asked before a conversation begins, and gets its end (docs/sideband.md); empty: none")
	f.StringVar(&s.webhookSecret, "webhook-secret", "",
		"`secret` that its messages are signed with; say it by the environment, a command line is seen by all")
	f.BoolVar(&s.insecure, "insecure", false, "listen on a public address although anybody can talk at your expense")
	f.DurationVar(&s.park, "park", time.Minute, "how long a resumable conversation waits for its lost client; 0: not at all")
	f.DurationVar(&s.drain, "drain", time.Minute, "how long conversations may go on after SIGTERM, until the second one; 0: not at all")
	f.DurationVar(&s.stall, "stall", 6*time.Second,
		"how long Gemini may be silent where an answer is due, before something is done about it; 0: for ever")
	f.IntVar(&s.maxTokens, "max-session-tokens", 0, "`tokens` after which a conversation is ended politely; 0: no limit")
	f.StringVar(&s.recordings, "recordings", "", "`folder` for the conversations that ask to be recorded; empty: none is")
	f.BoolVar(&s.recordAll, "record-all", false, "record the conversations that do not ask for it, too")
	f.StringVar(&s.calls, "calls", "",
		"`folder` for a JSON file of each conversation that is over, with its words (docs/sideband.md); empty: none")
	f.IntVar(&s.keep, "keep", 0, "`days` after which recordings and files of calls are deleted; 0: never")
	f.Var((*listenAddress)(&s.privateAddr), "private-addr",
		"`host:port` for the operator alone: their page, /metrics, /healthz, /readyz, /debug/pprof/ (docs/operating.md); empty: none")
	f.StringVar(&s.redis, "redis", "", "`URL` of the Redis that several gateways share (docs/scaling.md); empty: this one is alone")
	f.StringVar(&s.redisSecret, "redis-secret", "",
		"`secret` of these gateways, from which the key is made that encrypts what they keep in Redis; "+
			"say it by the environment, a command line is seen by all")
	f.Func(
		"node-url",
		"`URL` by which these gateways reach this one, as http://10.0.0.5:3001, "+
			"for the sideband and calls of OpenAI's clients and WHIP's; empty: that of addr, if that is one address without TLS",
		s.parseNodeURL,
	)
	f.Func("log", "text, or json: how the log is written; with ,debug behind it more is", s.parseLog)
	s.fileFlags(f)
	f.Var((*listenAddress)(&s.restAddr), "rest-addr", "`host:port` of the REST API besides that of addr; empty: none")
	f.StringVar(&s.appModel, "app-model", "gemini-3.8-flash", "`model` that writes them, and the outcomes of conversations")
	f.Func("opus-decoder", "libopus, or pion: pure Go, where no C may read strangers' bytes", func(v string) (err error) {
		s.opusDecoder, err = opus.ParseDecoderChoice(v)
		return err
	})
	return f
}

// fileFlags lists the settings that name the operator's files and folders.
func (s *settings) fileFlags(f *flag.FlagSet) {
	f.StringVar(&s.tools, "tools", "", "JSON `file` of the tools that every conversation has; empty: only those of its client")
	f.StringVar(&s.agents, "agents", "", "`folder` of the agents, a file each, that answer at every door (docs/agents.md); empty: none")
	f.StringVar(&s.telephony, "telephony", "",
		"JSON `file` of the telephony providers and agents that calls are taken for (docs/telephony.md); empty: none are")
	f.StringVar(
		&s.models,
		"models",
		"",
		"JSON `file` that says which backend answers REST calls for which model (docs/rest.md); empty: the one that answers calls",
	)
	f.Func(
		"google-report",
		"`file` of a report of `gateway check google`: what it found of Google replaces what is assumed; empty: none",
		func(v string) (err error) {
			s.findings, err = readFindings(v)
			return err
		},
	)
	f.Func("prices", "JSON `file` of what models cost (docs/cost.md); empty: Google's prices, as of this release", func(v string) (err error) {
		s.prices, err = price.ReadFile(v)
		return err
	})
	f.StringVar(&s.workspace, "workspace", "",
		"`folder` for the projects and apps of the VOX assistant (docs/vox.md); empty: no apps are generated")
	f.StringVar(&s.sip, "sip", "", "JSON `file` of telephone lines and who answers them (docs/sip.md); empty: there are none")
}

// list returns the Set of a flag of comma-separated values, each read by parse.
func list[T any](target *[]T, parse func(string) (T, error)) func(string) error {
	return func(v string) error {
		*target = nil
		for _, item := range strings.Split(v, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			value, err := parse(item)
			if err != nil {
				return err
			}
			*target = append(*target, value)
		}
		return nil
	}
}

func parseText(v string) (string, error) { return v, nil }

// listenAddress is the flag of a host:port where the gateway listens.
type listenAddress string

func (a *listenAddress) String() string { return string(*a) }

// Set implements flag.Value. An IPv6 address may have no brackets: Kubernetes' $(POD_IP):9090 becomes fd00::5:9090.
func (a *listenAddress) Set(v string) error {
	if v == "" {
		*a = ""
		return nil
	}
	v = bracketIPv6(v)
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%q is not host:port", v)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q is not a port number from 0 to 65535", port)
	}
	*a = listenAddress(v)
	return nil
}

// bracketIPv6 writes the brackets into an IPv6 address with a port that has none. Its last colon is before the port.
func bracketIPv6(hostPort string) string {
	i := strings.LastIndexByte(hostPort, ':')
	if i < 0 {
		return hostPort
	}
	if address, err := netip.ParseAddr(hostPort[:i]); err != nil || !address.Is6() {
		return hostPort
	}
	return "[" + hostPort[:i] + "]" + hostPort[i:]
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
		return fmt.Errorf("%q is neither text nor json, nor one of them with ,debug behind it", v)
	}
	s.log = logFormat{json: format == "json", debug: more == "debug"}
	return nil
}

func parseProxy(v string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(v); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(v)
	if err != nil {
		return prefix, fmt.Errorf("%q is neither an address nor a range like 10.0.0.0/8", v)
	}
	return prefix, nil
}

// envPrefix begins the names of all variables that are ours.
const envPrefix = "VOXGATE_"

// envName is the environment variable of a flag.
func envName(flagName string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// parseSettings reads the flags, and the environment for those that are not given.
func parseSettings(args []string, environ variables, stderr io.Writer) (settings, error) {
	s := settings{prices: price.Default}
	environ, err := environ.clean()
	if err != nil {
		return s, err
	}
	f := s.flags(stderr)
	var errs []error
	if environ["VOXGATE_WHIP"] != "" {
		errs = append(errs, errors.New("VOXGATE_WHIP: agents are files of their own now, in the folder of VOXGATE_AGENTS: docs/agents.md"))
	}
	known := []string{"VOXGATE_WHIP"}
	f.VisitAll(func(f *flag.Flag) {
		known = append(known, envName(f.Name))
		if v := environ[envName(f.Name)]; v != "" {
			if err := f.Value.Set(v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", envName(f.Name), explainParseError(f, v, err)))
			}
		}
	})
	s.unknown = environ.unknown(known)
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err := s.google(environ); err != nil {
		return s, err
	}
	return s, s.check()
}

// explainParseError says what a value should have been, where package flag says "parse error".
func explainParseError(f *flag.Flag, value string, err error) error {
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return err
	}
	switch getter.Get().(type) {
	case time.Duration:
		if _, bad := strconv.Atoi(value); bad == nil {
			return fmt.Errorf("%q is not a duration: add a unit, as in %ss", value, value)
		}
		return fmt.Errorf("%q is not a duration like 90s or 1m30s", value)
	case int:
		return fmt.Errorf("%q is not a whole number", value)
	case bool:
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return err
}

// google reads what Google's own SDKs read.
func (s *settings) google(environ variables) error {
	s.apiKey = api.Secret(cmp.Or(environ["GEMINI_API_KEY"], environ["GOOGLE_API_KEY"]))
	for _, name := range []string{"GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"} { // the first one set decides
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
		return fmt.Errorf("%w: set GOOGLE_CLOUD_PROJECT, or take GOOGLE_GENAI_USE_VERTEXAI away", api.ErrNoProject)
	}
	return nil
}

func (s *settings) check() error {
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		return fmt.Errorf("addr: %q is not host:port", s.addr)
	}
	for name, p := range map[string]int{"udp-port": s.udpPort, "tcp-port": s.tcpPort} {
		if p < 0 || p > 65535 {
			return fmt.Errorf("%s: %d is not a port number", name, p)
		}
	}
	s.access.Required = s.auth == "token" || s.auth == "" && s.access.Keys != ""
	if s.restAddr != "" {
		restHost, _, err := net.SplitHostPort(s.restAddr)
		if err != nil {
			return fmt.Errorf("rest-addr: %w", err)
		}
		if isLoopback(host) && !isLoopback(restHost) {
			host = restHost // the more public of the two counts
		}
	}
	if !s.access.Required && !s.insecure && !isLoopback(host) {
		return fmt.Errorf("addr %s can be reached from outside, and anybody there could talk at your expense: "+
			"name a file of keys by --keys (VOXGATE_KEYS), or say --insecure (VOXGATE_INSECURE=1)", s.addr)
	}
	if s.access.IdentityHeader != "" && len(s.access.Proxies) == 0 {
		return errors.New("identity-header: name the proxies that may say it by --trusted-proxies, or anybody could")
	}
	if s.turnSecret == "" && slices.ContainsFunc(s.iceServers, signaling.ICEServer.NeedsSecret) {
		return errors.New("ice-servers: a TURN server needs credentials: set VOXGATE_TURN_SECRET, or name them in the JSON form")
	}
	if s.webrtcHost != "" && net.ParseIP(s.webrtcHost) == nil {
		return fmt.Errorf("webrtc-host: %q is not an IP address", s.webrtcHost)
	}
	if err := s.checkAddresses(); err != nil {
		return err
	}
	if err := s.tls.check(); err != nil {
		return err
	}
	if s.park < 0 || s.drain < 0 {
		return errors.New("park, drain: a duration cannot be negative")
	}
	if s.stall < 0 || s.stall > 0 && s.stall < time.Second {
		return fmt.Errorf("stall: %v is less than a second, which is no silence", s.stall)
	}
	if err := s.checkFolders(); err != nil {
		return err
	}
	if s.sessionWebhook != "" && s.webhookSecret == "" {
		return errors.New("session-webhook: its messages must be signed: set VOXGATE_WEBHOOK_SECRET")
	}
	if s.redis != "" && len(s.redisSecret) < store.MinSecret {
		return fmt.Errorf(
			"redis: what is kept there is encrypted: set VOXGATE_REDIS_SECRET, the same at all gateways, %d bytes or more",
			store.MinSecret,
		)
	}
	if s.maxTokens < 0 {
		return errors.New("max-session-tokens: a number of tokens cannot be negative")
	}
	return nil
}

// maxKeep is longer than anybody keeps a file, in days. Dates that are far longer ago wrap around: all would be deleted.
const maxKeep = 1_000_000

// checkFolders finds at the start what the first recording and the first call would run into.
func (s *settings) checkFolders() error {
	if s.recordings == "" && s.recordAll {
		return errors.New("record-all: name a folder by --recordings")
	}
	if s.keep < 0 || s.keep > maxKeep {
		return fmt.Errorf("keep: %d days are not from 0 to %d", s.keep, maxKeep)
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

// checkAddresses finds two settings that name the same TCP port.
func (s *settings) checkAddresses() error {
	host, port, _ := net.SplitHostPort(s.addr)
	tcp := ""
	if own := strconv.Itoa(s.tcpPort); s.tcpPort != 0 && (own != port || s.webrtcHost != "") { // else the page shares its port
		tcp = net.JoinHostPort(cmp.Or(s.webrtcHost, host), own)
	}
	type listener struct{ name, addr string }
	list := []listener{{"addr", s.addr}, {"private-addr", s.privateAddr}, {"rest-addr", s.restAddr}, {"tcp-port", tcp}}
	for i, a := range list {
		for _, b := range list[:i] {
			if overlaps(a.addr, b.addr) {
				return fmt.Errorf("%s: %s is taken by %s, %s", a.name, a.addr, b.name, b.addr)
			}
		}
	}
	return nil
}

// overlaps reports whether nobody can listen at both of two addresses.
func overlaps(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	parse := func(host string) netip.Addr {
		switch host {
		case "":
			return netip.IPv6Unspecified()
		case "localhost":
			host = "127.0.0.1"
		}
		ip, _ := netip.ParseAddr(host)
		return ip.Unmap()
	}
	x, y := parse(hostA), parse(hostB)
	all := func(x, y netip.Addr) bool { return x == netip.IPv6Unspecified() || x.IsUnspecified() && y.Is4() }
	return hostA == hostB || x.IsValid() && y.IsValid() && (x == y || all(x, y) || all(y, x))
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
