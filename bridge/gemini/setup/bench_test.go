package setup_test

import (
	"encoding/json"
	"fmt"
	"strings"
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
