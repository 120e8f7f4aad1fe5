package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows are the imports that are allowed among our packages, as ARCHITECTURE.md draws them. A star stands for the
// packages below a folder.
var arrows = map[string][]string{
	"agents":             {"bridge", "bridge/flow", "internal/filewatch", "tools"},
	"internal/crash":     {},
	"internal/filewatch": {}, "internal/environment": {}, "internal/wordlint": {},
	"gateway": {
		"agents",
		"signaling",
		"signaling/access",
		"signaling/rtc",
		"signaling/backend",
		"signaling/compat/*",
		"signaling/phone/*",
		"vox",
		"signaling/client",
		"bridge",
		"bridge/gemini/api",
		"bridge/gemini/emulator",
		"bridge/gemini/probe",
		"bridge/gemini/liveconfig",
		"bridge/gemini/traces",
		"bridge/gemini/wire",
		"bridge/pricing",
		"internal/environment",
		"gateway/check",
		"gateway/console",
		"gateway/telemetry",
		"media/opus",
		"media/smartturn",
		"internal/filewatch",
		"store",
		"tools",
		"tools/*",
		"web",
	},
	"gateway/check":   {"client"}, // acts like a user, and uses only the client protocol
	"gateway/console": {"agents", "bridge", "signaling", "signaling/access", "signaling/backend", "signaling/client", "web"},
	"gateway/telemetry": {
		"agents", "bridge", "bridge/gemini/wire", "gateway/telemetry/tracing", "media/record", "media/smartturn", "signaling/phone/sip",
		"signaling/rtc", "tools", "tools/webhook",
	},
	"gateway/telemetry/tracing": {"bridge", "tools"},
	"client":                    {}, // used by programs outside this project
	"deploy":                    {}, // deployment files, and tests of them
	"client/rtc":                {"client"},
	"examples/mobile":           {"client"},                                     // an app
	"examples/minimal":          {"client", "client/rtc", "media/opus/libopus"}, // an app, which needs an encoder
	"signaling": {
		"agents", "bridge", "media", "media/opus", "signaling/access", "signaling/client/protocol", "signaling/rtc", "tools",
	},
	"signaling/access":            {"agents", "bridge", "internal/environment", "internal/filewatch", "store", "tools"},
	"signaling/compat/geminilive": {"agents", "bridge", "media", "signaling", "signaling/access", "signaling/client/protocol", "tools"},
	"signaling/compat/geminirest": {
		"bridge", "bridge/gemini/api", "bridge/gemini/wire", "bridge/pricing", "internal/environment", "signaling", "signaling/access", "tools",
	},
	"signaling/backend":           {"bridge", "signaling", "signaling/access", "signaling/client/protocol"},
	"signaling/phone/mediastream": {"agents", "bridge", "media", "media/g711", "signaling", "signaling/access", "signaling/phone", "tools"},
	"vox": {
		"agents", "bridge", "bridge/gemini/wire", "bridge/textmodel", "media", "signaling", "signaling/access", "tools", "tools/canvas",
		"vox/assistant",
	},
	"signaling/client": {
		"bridge", "media", "media/opus", "signaling", "signaling/access", "signaling/client/protocol", "signaling/rtc", "web",
	},
	"internal/testkit": {
		"internal/testkit/*",
		"agents",
		"bridge",
		"bridge/gemini/*",
		"bridge/pricing",
		"media",
		"media/*",
		"signaling",
		"signaling/*",
		"store",
		"vox",
		"vox/assistant",
	}, // imported by tests only
	"signaling/client/protocol": {"bridge", "bridge/gemini/wire", "media", "tools"},
	"signaling/rtc":             {"media", "media/g711", "media/opus", "media/picture", "media/rtpaudio"},
	"internal/testkit/rtctest":  {}, // imported by tests and the lab only
	"signaling/phone":           {"agents", "bridge", "internal/environment", "media", "media/vad", "tools", "tools/digits", "tools/webhook"},
	"signaling/compat/rtvi":     {"bridge", "media/opus", "signaling", "signaling/access", "signaling/phone", "signaling/rtc", "tools"},
	"signaling/phone/sip": {
		"agents",
		"bridge",
		"signaling",
		"signaling/access",
		"signaling/phone",
		"signaling/phone/sip/media",
		"signaling/phone/sip/ua",
		"signaling/rtc",
		"media",
		"tools",
		"tools/webhook",
	},
	"signaling/phone/sip/ua": {"internal/filewatch", "signaling/access", "signaling/phone"},
	"signaling/phone/sip/media": {
		"media", "media/g711", "media/g722", "media/opus", "media/rtpaudio", "signaling/phone", "signaling/rtc",
	},
	"signaling/compat/*": {
		"agents", "bridge", "media", "media/*", "signaling", "signaling/access", "signaling/rtc", "tools",
	}, // gateway/protocols.go lists those that the gateway serves
	"bridge": {
		"media",
		"media/playout",
		"media/record",
		"store",
		"tools",
		"tools/canvas",
		"bridge/alarm",
		"bridge/cluster",
		"bridge/upstream",
		"bridge/pricing",
		"bridge/flow",
		"bridge/toolcalls",
		"bridge/transcript",
		"bridge/turns",
		"bridge/uplink",
		"media/prosody",
		"bridge/gemini",
		"bridge/gemini/api",
		"bridge/gemini/wire",
		"bridge/gemini/liveconfig",
	},
	"bridge/alarm":                {},
	"internal/testkit/bridgetest": {}, // imported by tests only
	"bridge/cluster":              {"store"},
	"bridge/upstream": {
		"bridge/alarm",
		"bridge/uplink",
		"media",
		"bridge/gemini",
		"bridge/gemini/api",
		"bridge/gemini/liveconfig",
		"bridge/gemini/wire",
	},
	"bridge/pricing":       {"bridge/gemini/wire", "tools"},
	"bridge/flow":          {"tools", "tools/digits"},
	"bridge/textmodel":     {"bridge/gemini", "bridge/gemini/wire", "bridge/upstream"},
	"bridge/toolcalls":     {"bridge/uplink", "bridge/gemini/liveconfig", "bridge/gemini/wire", "tools", "tools/canvas"},
	"bridge/transcript":    {"bridge/gemini/wire"},
	"bridge/turns":         {},
	"bridge/uplink":        {"bridge/gemini/wire", "bridge/turns", "media", "media/silero", "media/vad"},
	"bridge/gemini":        {"bridge/gemini/api", "bridge/gemini/wire"},
	"bridge/gemini/api":    {"bridge/gemini/wire", "tools"},
	"bridge/gemini/wire":   {"tools"},
	"bridge/gemini/traces": {},
	"bridge/gemini/probe": {
		"bridge/gemini", "bridge/gemini/api", "bridge/gemini/liveconfig", "bridge/gemini/traces", "bridge/gemini/wire", "bridge/pricing",
		"media/g711", "tools",
	},
	"bridge/gemini/liveconfig":        {"bridge/gemini", "bridge/gemini/api", "bridge/gemini/wire", "bridge/turns", "tools"},
	"bridge/gemini/emulator":          {"media", "media/vad", "bridge/gemini/wire", "bridge/gemini/emulator/live", "tools"},
	"bridge/gemini/emulator/live":     {},
	"media":                           {},
	"internal/testkit/mediatest":      {"media", "media/opus", "media/opus/libopus"}, // imported by tests and the lab only
	"internal/testkit/mediatest/link": {"internal/testkit/mediatest"},                // a program of its own
	"media/g711":                      {"media"},
	"media/g722":                      {"media"},
	"media/opus":                      {"media", "media/opus/libopus"},
	"media/opus/libopus":              {},
	"media/picture":                   {},
	"media/playout":                   {"media"},
	"media/prosody":                   {},
	"media/record":                    {"media", "media/opus/libopus"},
	"media/rtpaudio":                  {"media"},
	"media/silero":                    {},
	"media/smartturn":                 {"media/prosody"},
	"media/vad":                       {"media"},
	"store":                           {},
	"internal/testkit/redistest":      {}, // imported by tests only
	"tools":                           {},
	"tools/canvas":                    {"tools", "tools/guard"},
	"tools/catalogue":                 {"internal/environment", "tools", "tools/canvas", "tools/mcp", "tools/webhook"},
	"tools/digits":                    {},
	"tools/guard":                     {},
	"tools/mcp":                       {"tools"},
	"vox/assistant":                   {"tools"},
	"vox/assistant/check":             {"vox/assistant"}, // a program of its own
	"tools/webhook":                   {"tools", "tools/guard"},
	"tools/*":                         {"tools"},
	"web":                             {},
}

// owners lists, for a library, the only packages that may import it.
var owners = map[string][]string{
	"github.com/pion/webrtc/v4": {
		"signaling/rtc", "internal/testkit", "internal/testkit/rtctest", "client/rtc", "gateway/check",
	},
	"github.com/pion/opus":                     {"media/opus"},
	"github.com/emiago/sipgo":                  {"signaling/phone/sip/ua"},
	"github.com/gotranspile/g722":              {"media/g722"},
	"golang.org/x/crypto":                      {"gateway"},
	"golang.org/x/image":                       {"media/picture"},
	"go.opentelemetry.io/otel":                 {"gateway/telemetry/tracing"},
	"github.com/golang-jwt/jwt/v5":             {"signaling/access"},
	"github.com/MicahParks/keyfunc/v3":         {"signaling/access"},
	"github.com/zaf/resample":                  {"media"},
	"google.golang.org/genai":                  {"bridge/gemini/api", "bridge/gemini/probe", "signaling/compat/geminirest"},
	"github.com/redis/go-redis/v9":             {"store"},
	"cloud.google.com/go/auth":                 {"bridge/gemini/api"},
	"code.dny.dev/ssrf":                        {"tools/guard"},
	"github.com/kljensen/snowball":             {"vox/assistant"},
	"github.com/microcosm-cc/bluemonday":       {"tools/canvas"},
	"github.com/modelcontextprotocol/go-sdk":   {"tools/mcp"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"tools"},
	"github.com/tdewolff/minify/v2":            {"signaling/client"},
	"github.com/yalue/onnxruntime_go":          {"media/smartturn"},
	"github.com/gorilla/websocket": {
		"signaling",
		"internal/testkit",
		"signaling/compat/openai",
		"internal/testkit/bridgetest",
		"bridge/gemini",
		"bridge/gemini/emulator",
		"bridge/gemini/emulator/live",
		"gateway/check",
		"client",
	},
}

// isConformanceTest reports whether a package runs the conformance tests for one endpoint, like whip/whiptest. Such a package
// may import the same packages as internal/testkit.
func isConformanceTest(pkg string) bool {
	folder, name := path.Split(pkg)
	return name == path.Base(folder)+"test" && (strings.HasPrefix(pkg, "signaling/") || strings.HasPrefix(pkg, "vox/")) &&
		arrows[pkg] == nil
}

func TestImportsFollowTheMap(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "voxgate/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], "voxgate/")
		allowed, ok := lookUp(pkg)
		owner := pkg
		if isConformanceTest(pkg) {
			owner = "internal/testkit"
			allowed, ok = append([]string{owner}, arrows[owner]...), true
		}
		if !ok {
			t.Errorf("package %s is not on the map", pkg)
			continue
		}
		for _, imported := range fields[1:] {
			if isConformanceTest(strings.TrimPrefix(imported, "voxgate/")) {
				t.Errorf("%s imports %s, which is for tests", pkg, imported)
			}
			if ours, ok := strings.CutPrefix(imported, "voxgate/"); ok && ours != "internal/crash" && // which is for whatever starts goroutines
				!slices.ContainsFunc(allowed, func(a string) bool { return matches(a, ours) }) {
				t.Errorf("%s imports %s", pkg, ours)
			}
			for library, may := range owners {
				if (imported == library || strings.HasPrefix(imported, library+"/")) && !slices.Contains(may, owner) {
					t.Errorf("%s imports %s, which belongs to %v", pkg, imported, may)
				}
			}
		}
	}
}

func lookUp(pkg string) ([]string, bool) {
	if a, ok := arrows[pkg]; ok {
		return a, true
	}
	best := ""
	for pattern := range arrows {
		if matches(pattern, pkg) && len(pattern) > len(best) {
			best = pattern
		}
	}
	return arrows[best], best != ""
}

func matches(pattern, pkg string) bool {
	folder, star := strings.CutSuffix(pattern, "/*")
	return pattern == pkg || star && strings.HasPrefix(pkg, folder+"/")
}

// TestTheSameMessagesEverywhere compares the message types of the Go code, of PROTOCOL.md and of the page.
func TestTheSameMessagesEverywhere(t *testing.T) {
	code := messageTypes(t, "../signaling/client/protocol/protocol.go")
	protocol := readFile(t, "../signaling/client/PROTOCOL.md")
	inProtocol := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z0-9_]+)` \\| .*\\|").FindAllStringSubmatch(protocol, -1) {
		if strings.ToUpper(m[1]) == m[1] || m[1] == "groundingMetadata" {
			inProtocol[m[1]] = true
		}
	}
	inPage := map[string]bool{}
	types := readFile(t, "../web/library/messages.d.ts")
	for _, list := range regexp.MustCompile(`(?s)_MESSAGES: readonly \[(.*?)\]`).FindAllStringSubmatch(types, -1) {
		for _, m := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(list[1], -1) {
			inPage[m[1]] = true
		}
	}
	for _, name := range code {
		if !inProtocol[name] {
			t.Errorf("PROTOCOL.md does not describe %s", name)
		}
		if !inPage[name] {
			t.Errorf("the page's types lack %s", name)
		}
	}
	for name := range inProtocol {
		if !slices.Contains(code, name) {
			t.Errorf("PROTOCOL.md describes %s, which the code does not know", name)
		}
	}
	for name := range inPage {
		if !slices.Contains(code, name) {
			t.Errorf("the page's types have %s, which the code does not know", name)
		}
	}
}

// messageTypes returns the values of the constants type* and Type* of a Go file.
func messageTypes(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "type") || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		return true
	})
	if len(names) < 20 {
		t.Fatalf("only %d message types found in %s", len(names), file)
	}
	return names
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEverySettingIsDocumented compares the tables in docs/settings.md with the flags, in both directions.
func TestEverySettingIsDocumented(t *testing.T) {
	table := readFile(t, "../docs/settings.md")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`(VOXGATE_[A-Z_]+)`").FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	var s settings
	s.newFlagSet(io.Discard).VisitAll(func(f *flag.Flag) {
		name := envName(f.Name)
		if !listed[name] {
			t.Errorf("docs/settings.md does not list %s", name)
		}
		delete(listed, name)
		if row := fmt.Sprintf("| `--%s`", f.Name); !strings.Contains(table, row) {
			t.Errorf("docs/settings.md has no row that begins with %s", row)
		}
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" &&
			!strings.Contains(table, "`"+strings.TrimSuffix(f.DefValue, "0s")+"`") {
			t.Errorf("docs/settings.md does not give the default %s of --%s", f.DefValue, f.Name)
		}
	})
	for name := range listed {
		t.Errorf("docs/settings.md lists %s, which does not exist", name)
	}
}
