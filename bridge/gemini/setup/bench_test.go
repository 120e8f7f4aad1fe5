package setup_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"voxgate/bridge/gemini/setup"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

// BenchmarkParse is what a conversation's declarations cost: the canvas, 20 tools of the operator's, 20 of the client's.
func BenchmarkParse(b *testing.B) {
	const parameters = `{"type":"object","properties":{"city":{"type":"string","description":"Where"},"days":{"type":"integer","minimum":1},"unit":{"enum":["C","F"]}},"required":["city"]}`
	scope := setup.Scope{Screen: true, Canvas: canvas.Declarations()}
	var list []string
	for i := range 20 {
		scope.Tools = append(scope.Tools, tools.Declaration{Name: fmt.Sprint("own", i), Parameters: json.RawMessage(parameters)})
		list = append(list, fmt.Sprintf(`{"name":"f%d","parameters":%s}`, i, parameters))
	}
	config := []byte(`{"voxgate":{"canvas":true},"tools":[{"functionDeclarations":[` + strings.Join(list, ",") + `]}]}`)
	b.ReportAllocs()
	for b.Loop() {
		c, err := setup.Parse(config, "c", scope)
		if err != nil || len(c.Functions) != 43 {
			b.Fatal(len(c.Functions), err)
		}
	}
}

// BenchmarkParseLarge is a set-up of 400 KB: the declarations of many MCP servers, as large as a client may send them.
func BenchmarkParseLarge(b *testing.B) {
	config := largeConfig(300)
	b.ReportAllocs()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for b.Loop() {
		if c, err := setup.Parse(config, "c", setup.Scope{Screen: true}); err != nil || len(c.Functions) < 200 {
			b.Fatal(len(c.Functions), err)
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/op")
	b.ReportMetric(float64(len(config))/1e3, "KB")
}

// largeConfig declares n functions of 1.3 KB.
func largeConfig(n int) []byte {
	about := strings.Repeat("What this is about, said at some length. ", 5)
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"name":"f%d","description":%q,"parametersJsonSchema":{"type":"object","properties":{
			"city":{"type":"string","description":%q},"days":{"type":"integer","minimum":1},"unit":{"enum":["C","F"]},
			"tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]+$"}},
			"to":{"type":"object","properties":{"street":{"type":"string","description":%q},"number":{"type":["integer","null"]}},"required":["street"]}
			},"required":["city"],"additionalProperties":false}}`, i, about, about, about))
	}
	return []byte(`{"tools":[{"functionDeclarations":[` + strings.Join(list, ",") + `]}]}`)
}
