package testkit_test

import (
	"slices"
	"testing"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling/client/clienttest"
	"voxgate/signaling/compat/geminilive/geminilivetest"
	"voxgate/signaling/compat/openai/openaitest"
	"voxgate/signaling/compat/rtvi/rtvitest"
	"voxgate/signaling/compat/whip/whiptest"
	"voxgate/signaling/phone/mediastream/mediastreamtest"
	"voxgate/vox/voxtest"
)

// protocols are those that the tests of this package hold to the same rules.
var protocols = []testkit.Conformance{
	clienttest.Conformance,
	geminilivetest.Conformance,
	mediastreamtest.Conformance,
	openaitest.Conformance,
	rtvitest.Conformance,
	voxtest.Conformance,
	whiptest.Conformance,
}

// TestEveryProtocolIsHeldToTheRules finds protocols without a line above. SIP and REST have no conversations that begin with a token over
// HTTP, and tests of their own.
func TestEveryProtocolIsHeldToTheRules(t *testing.T) {
	known := []string{"sip", "rest"}
	for _, p := range protocols {
		known = append(known, p.Name)
	}
	for _, name := range bridge.ProtocolNames(bridge.InAgents | bridge.InGrants) {
		if !slices.Contains(known, name) {
			t.Errorf("%s has no Conformance", name)
		}
	}
}

// serveAll are the options that serve all protocols, for a test.
func serveAll(t *testing.T) (options []testkit.Option) {
	t.Helper()
	for _, p := range protocols {
		if p.Serve != nil {
			options = append(options, p.Serve(t))
		}
	}
	return options
}
