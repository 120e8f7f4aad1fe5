package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mcpServer builds the example server of the MCP SDK, in the version of go.mod, and returns its path.
func mcpServer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.Command("go", "build", "-o", program,
		"github.com/modelcontextprotocol/go-sdk/examples/server/everything").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestOperatorsTools starts the gateway with a tools file, and makes the model call these tools.
func TestOperatorsTools(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	asked := make(chan string, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.HasPrefix(r.Header.Get("webhook-signature"), "v1,") {
			t.Error("not signed")
		}
		asked <- string(body)
		fmt.Fprint(w, `{"number": 9007199254740993}`)
	}))
	defer hook.Close()
	file := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"builtin":["get_time"],
		"webhooks":[{"name":"order","title":"Ordering…","description":"Orders.",
			"parameters":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]},"url":%q,"secret":"${SECRET}"}],
		"mcp":[{"name":"demo","command":[%q],"prefix":"demo_","tools":["greet (structured)"]}]}`, hook.URL, mcpServer(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_TOOLS", file))
	c := p.openConversation(`{"tools":[{"functionDeclarations":[{"name":"order"}]}]}`)
	defer c.Conn.Close()
	c.AwaitEventWith("SETUP_COMPLETE", `"name":"order","title":"Ordering…","behavior":"NON_BLOCKING","where":"gateway"`)
	c.SendText(`/tool order {"n": 9007199254740993}`)
	c.AwaitEventWith("TOOL_STATUS", `"status":"running"`)
	c.AwaitEventWith("TOOL_STATUS", `"name":"order","title":"Ordering…","status":"done"`)
	var body struct {
		Name    string
		Args    struct{ N json.Number }
		Session struct{ ID, Door string }
	}
	if text := <-asked; json.Unmarshal([]byte(text), &body) != nil || body.Name != "order" || body.Args.N != "9007199254740993" ||
		body.Session.Door != "web" ||
		body.Session.ID == "" {
		t.Errorf("the webhook got %s", text)
	}
	c.SendText(`/tool order {"n": "many"}`)
	c.AwaitEventWith("GEMINI_ERROR", "got string, want integer")
	c.SendText(`/tool get_time {"timezone":"Europe/Berlin"}`)
	c.AwaitEventWith("TOOL_STATUS", `"name":"get_time"`)
	c.SendText(`/tool demo_greet__structured_ {"name":"Ada"}`)
	c.AwaitEventWith("TOOL_STATUS", `"name":"demo_greet__structured_"`)
	c.AwaitEventWith("CONTENT_MESSAGE", "Hi ")
	if strings.Contains(p.logged(), "9007199254740993") || strings.Contains(p.logged(), "hush") {
		t.Error("the log has what a tool was asked, or a secret")
	}
	p.awaitLog(`msg=tools (own=3)`)
}

// TestCanvas: the model shows an image and searches the web. The client gets addresses at the gateway for both. A forged
// address is rejected, and the metrics count the call.
func TestCanvas(t *testing.T) {
	t.Parallel()
	p := startGateway(t, []string{"serve", "--addr", "127.0.0.1:0", "--private-addr", "127.0.0.1:0"}, env())
	c := p.openConversation(`{"voxgate":{"canvas":true}}`)
	defer c.Conn.Close()
	c.AwaitEventWith("SETUP_COMPLETE", `"name":"show_canvas_tool"`)
	c.SendText(`/tool show_canvas_tool {"schema":"{\"type\":\"image\",\"src\":\"https://example.com/a.png\"}"}`)
	c.AwaitEventWith("TOOL_CALL", "canvas/image?")
	c.SendText("/ground parrots")
	c.AwaitEventWith("groundingMetadata", `"chips":"canvas/chips?`)
	get := func(path string) (*http.Response, string) {
		t.Helper()
		r, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r, string(body)
	}
	chips := regexp.MustCompile(`canvas/chips\?id=\w+`).FindString(c.Text())
	if r, body := get(p.url + "/" + chips); r.StatusCode != http.StatusOK ||
		!strings.Contains(r.Header.Get("Content-Security-Policy"), "sandbox") ||
		!strings.Contains(body, "parrots") {
		t.Errorf("%s: %s %v %s", chips, r.Status, r.Header, body)
	}
	if r, body := get(p.url + "/canvas/image?u=https%3A%2F%2Fexample.com&x=9999999999&s=forged"); r.StatusCode != http.StatusForbidden {
		t.Errorf("a forged address: %s %s", r.Status, body)
	}
	_, metrics := get(p.awaitLog(`msg=private at=(\S+)`) + "/metrics")
	if want := `voxgate_tool_call_seconds_count{outcome="done",where="canvas"} 1`; !strings.Contains(metrics, want) {
		t.Errorf("the metrics lack %s", want)
	}
}

func TestBadToolsFileKeepsUsFromStarting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(file, []byte(`{"webhooks":[{"name":"x","url":"http://127.0.0.1","secrte":"y"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := runCommand(t.Context(), []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_TOOLS", file), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "secrte") || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
