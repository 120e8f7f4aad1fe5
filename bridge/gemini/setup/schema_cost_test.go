package setup_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"voxgate/bridge/gemini/setup"
)

// Was wrong: maxSchemaNodes bounds each schema with its references followed, but nothing bounds how many there are: a config of 800 KB
// (a client may send 1 MB) whose 1000 functions are each a reference bomb of 800 bytes just below 2000 parts took 48 s of a core and
// 14 GB of allocations, and 1.9 GB of compiled schemas stay for the whole conversation. Each UPDATE_CONFIG does it again, in the
// session's loop. A hundred of them are enough to show it.
func TestManyBombs(t *testing.T) {
	var list []string
	for i := range 100 {
		// 12 * 12 * 12 = 1728 parts
		refs := func(n int, to string) string {
			var b []string
			for k := range n {
				b = append(b, fmt.Sprintf(`"%c":{"$ref":"#/$defs/%s"}`, 'a'+k, to))
			}
			return `{"type":"object","properties":{` + strings.Join(b, ",") + `}}`
		}
		list = append(list, fmt.Sprintf(`{"name":"f%d","parameters":{"type":"object","$defs":{"x":%s,"y":%s},"properties":{"a":%s}}}`, i,
			strings.Replace(refs(10, "y"), "{}", "", 1), `{"type":"object","properties":{`+leaves(12)+`}}`, refs(12, "x")))
	}
	config := `{"tools":[{"functionDeclarations":[` + strings.Join(list, ",") + `]}]}`
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c, err := setup.Parse([]byte(config), "c", setup.Scope{Screen: true})
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	allocated := after.TotalAlloc - before.TotalAlloc // says what it costs on a busy machine, too
	if allocated > 200<<20 || kept > 50<<20 {
		t.Errorf("%d KB allocated %d MB and keep %d MB (%d functions, %v, %d)", len(config)>>10, allocated>>20, kept>>20, len(c.Functions), err, len(c.Warnings))
	}
	runtime.KeepAlive(c)
}

// Was wrong: a config of 330 KB, the declarations of many MCP servers, took 140 ms of a core and 38 MB of allocations, since every
// schema was compiled although few functions are ever called.
func TestALargeConfigIsCheap(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := setup.Parse(largeConfig(300), "c", setup.Scope{Screen: true})
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || len(c.Functions) != 300 || allocated > 15<<20 {
		t.Errorf("%d functions allocated %d MB (%v)", len(c.Functions), allocated>>20, err)
	}
	f := c.Functions[0]
	if f.Check([]byte(`{"city":"Rome","days":1}`)) != nil || f.Check([]byte(`{"city":"Rome","days":0}`)) == nil {
		t.Error("the arguments of a call are not checked")
	}
	var many []string
	for i := range 513 {
		many = append(many, fmt.Sprintf(`{"name":"f%d"}`, i))
	}
	if _, err := setup.Parse([]byte(`{"tools":[{"functionDeclarations":[`+strings.Join(many, ",")+`]}]}`), "c", setup.Scope{Screen: true}); err == nil || !strings.Contains(err.Error(), "functionDeclarations[512] is one too many") {
		t.Errorf("513 functions: %v", err)
	}
}

func leaves(n int) string {
	var b []string
	for k := range n {
		b = append(b, fmt.Sprintf(`"%c":{}`, 'a'+k))
	}
	return strings.Join(b, ",")
}
