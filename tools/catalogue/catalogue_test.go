package catalogue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"voxgate/tools"
	"voxgate/tools/catalogue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// installEverything builds the MCP SDK's example server "everything", and adds its folder to the PATH.
func installEverything(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const server = "github.com/modelcontextprotocol/go-sdk/examples/server/everything"
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "everything"), server)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExample(t *testing.T) {
	installEverything(t)
	t.Setenv("ORDERS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	t.Setenv("ORDERS_KEY", "k")
	c, err := catalogue.Load(t.Context(), "example.json", quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := c.Tools()
	var names []string
	for _, tool := range all {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "get_time order_pizza demo_greet" {
		t.Fatalf("tools %s", got)
	}
	pizza := all[1].Declaration
	if pizza.Title != "Ordering pizza…" || pizza.Timeout != 20*time.Second || pizza.Behavior != tools.NonBlocking ||
		pizza.Scheduling != tools.Interrupt || !strings.Contains(string(pizza.Parameters), `"margherita"`) {
		t.Errorf("%+v", pizza)
	}
	if all[2].Timeout != 10*time.Second {
		t.Errorf("%+v", all[2].Declaration)
	}
	if got, err := all[2].Run(t.Context(), json.RawMessage(`{"name":"Ada"}`)); string(got) != `{"output":"Hi Ada"}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

func TestInvalidFiles(t *testing.T) {
	t.Setenv("HIDDEN", "hidden")
	const hook = `"name":"a","description":"d","url":"http://localhost/","secret":"s"`
	with := func(fields string) string { return `{"webhooks":[{` + hook + fields + `}]}` }
	const whole = `,"description":"d","url":"http://localhost/","secret":"s"}]}`
	for text, want := range map[string]string{
		"":                                `:1:1: unexpected end of JSON input`,
		"{\n  \"builtin\": [}":            `:2:15: invalid character '}'`,
		`{} {}`:                           `:1:4: invalid character '{' after top-level value`,
		`[]`:                              `the file: must be an object`,
		`{"tools":[]}`:                    `tools: unknown field`,
		`{"Builtin":[]}`:                  `Builtin: unknown field`,
		`{"builtin":"get_time"}`:          `builtin: must be an array, not string`,
		`{"builtin":["fly"]}`:             `builtin[0]: unknown built-in tool "fly"`,
		`{"webhooks":[{` + hook + `},7]}`: `webhooks[1]: must be an object`,
		`{"webhooks":[{"name":7}]}`:       `webhooks[0].name: must be a string, not number`,
		`{"webhooks":[{` + hook + `},{` + hook + `}]}`:    `webhooks[0] and webhooks[1] both have a tool "a"`,
		`{"webhooks":[{"name":"a b"` + whole:              `webhooks[0].name: "a b" must be a letter or _`,
		`{"webhooks":[{"name":"show_canvas_tool"` + whole: `webhooks[0].name: "show_canvas_tool" is reserved for the canvas`,

		with(`,"x":1`):                                   `webhooks[0].x: unknown field`,
		with(`,"url":""`):                                `webhooks[0].url: is missing`,
		with(`,"url":"ftp://x"`):                         `webhooks[0].url: must be http`,
		with(`,"secret":"${NOT_THERE}"`):                 `webhooks[0].secret: environment variable NOT_THERE is not set`,
		with(`,"secret":"whsec_${HIDDEN}!"`):             `webhooks[0].secret: what follows "whsec_" is not base64`,
		with(`,"headers":{"K":"${HIDDEN}${NOT_THERE}"}`): `webhooks[0].headers.K: environment variable NOT_THERE is not set`,
		with(`,"headers":{"K":7}`):                       `webhooks[0].headers: must be a string, not number`,
		with(`,"allowPrivate":"yes"`):                    `webhooks[0].allowPrivate: must be true or false, not string`,
		with(`,"timeout":"-1s"`):                         `webhooks[0].timeout: "-1s" is not a duration such as 20s`,
		with(`,"timeout":"10m"`):                         `webhooks[0].timeout: "10m" is above the maximum of 5m0s`,
		with(`,"behavior":"ASYNC"`):                      `webhooks[0].behavior: "ASYNC" is neither`,
		with(`,"scheduling":"NOW"`):                      `webhooks[0].scheduling: "NOW" must be`,
		with(`,"parameters":{"type":"objekt"}`):          `webhooks[0].parameters: `,

		`{"builtin":["get_time","get_time"]}`:                               `builtin[0] and builtin[1] both have a tool "get_time"`,
		`{"mcp":[{"command":["x"]}]}`:                                       `mcp[0].name: is missing`,
		`{"mcp":[{"name":"m"}]}`:                                            `mcp[0]: needs either a command or a url`,
		`{"mcp":[{"name":"m","url":"http://x","env":{}}]}`:                  `mcp[0].env: only for a server with a command`,
		`{"mcp":[{"name":"m","command":["x"],"headers":{}}]}`:               `mcp[0].headers: only for a server with a url`,
		`{"mcp":[{"name":"m","command":["x"],"env":{"K":"${NOT_THERE}"}}]}`: `mcp[0].env.K: environment variable NOT_THERE is not set`,
	} {
		path := write(t, text)
		c, err := catalogue.Load(t.Context(), path, quiet)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), path+":") || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := catalogue.Load(t.Context(), filepath.Join(t.TempDir(), "none.json"), quiet); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}

// If an MCP server does not start, only its own tools are missing. The log names the server, without secrets.
func TestServersThatDoNotStart(t *testing.T) {
	t.Setenv("HIDDEN", "hidden")
	var log bytes.Buffer
	path := write(t, `{"builtin":["get_time"],"mcp":[{"name":"shop","command":["no-such-program"]},
		{"name":"desk","url":"http://127.0.0.1:1/?${HIDDEN}=hidden"}]}`)
	c, err := catalogue.Load(t.Context(), path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	all := c.Tools()
	c.Close()
	if len(all) != 1 || all[0].Name != "get_time" {
		t.Errorf("%+v", all)
	}
	for _, want := range []string{`MCP server \"shop\": exec: \"no-such-program\"`, `MCP server \"desk\": connect: dial tcp`} {
		if !strings.Contains(log.String(), strings.ReplaceAll(want, `\"`, `\\"`)) && !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "hidden") {
		t.Error(log.String())
	}
}

// TestDuplicateToolNames: a webhook and an MCP server have a tool of the same name, which is an error. goleak checks that the
// started server has ended.
func TestDuplicateToolNames(t *testing.T) {
	installEverything(t)
	path := write(t, `{"webhooks":[{"name":"greet","description":"d","url":"http://localhost/","secret":"s"}],
		"mcp":[{"name":"demo","command":["everything"]}]}`)
	_, err := catalogue.Load(t.Context(), path, quiet)
	if want := path + `: webhooks[0] and mcp[0] (demo) both have a tool "greet"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestCurrentTime(t *testing.T) {
	c, err := catalogue.Load(t.Context(), write(t, `{"builtin":["get_time"]}`), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tool := c.Tools()[0]
	synctest.Test(t, func(t *testing.T) { // the fake clock starts in the year 2000
		got, err := tool.Run(t.Context(), json.RawMessage(`{"timezone":"America/New_York"}`))
		const want = `{"spoken":"Friday, 31 December 1999, 19:00","time":"1999-12-31T19:00:00-05:00","timezone":"America/New_York"}`
		if string(got) != want || err != nil {
			t.Errorf("%s, %v", got, err)
		}
		for _, args := range []string{``, `{}`, `{"timezone":""}`} {
			zone, _ := time.Now().Zone()
			if got, err := tool.Run(t.Context(), json.RawMessage(args)); err != nil || !strings.Contains(string(got), `"timezone":"`+zone+`"`) {
				t.Errorf("%s: %s, %v", args, got, err)
			}
		}
		for _, zone := range []string{"Mars/Olympus", "../../etc/passwd"} {
			args, _ := json.Marshal(map[string]string{"timezone": zone})
			if got, err := tool.Run(context.Background(), args); err == nil ||
				!strings.HasPrefix(err.Error(), `unknown time zone "`+zone+`"`) {
				t.Errorf("%s, %v", got, err)
			}
		}
	})
}
