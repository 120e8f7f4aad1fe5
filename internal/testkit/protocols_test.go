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

// protocols lists the protocols to which the tests of this package apply the same rules.
var protocols = []testkit.Conformance{
	clienttest.Conformance,
	geminilivetest.Conformance,
	mediastreamtest.Conformance,
	openaitest.Conformance,
	rtvitest.Conformance,
	voxtest.Conformance,
	whiptest.Conformance,
}

// TestEveryProtocolIsHeldToTheRules finds protocols that are missing in the list. SIP and REST are exceptions with their own
// tests, because none of their conversations begins with a token over HTTP.
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

// serveAll returns the options with which a test's gateway serves all protocols.
func serveAll(t *testing.T) (options []testkit.Option) {
	t.Helper()
	for _, p := range protocols {
		if p.Serve != nil {
			options = append(options, p.Serve(t))
		}
	}
	return options
}
