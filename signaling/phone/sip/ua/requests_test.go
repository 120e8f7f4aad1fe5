package ua

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"
)

// FuzzRequest parses the headers of trunks' requests. All results stay within their bounds.
func FuzzRequest(f *testing.F) {
	const head = "INVITE sip:500@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKa\r\n" +
		"From: \"Ada\" <sip:ada@192.0.2.9>;tag=1;verstat=TN-Validation-Passed\r\n" +
		"To: <sip:500@192.0.2.1>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n"
	for _, headers := range []string{
		"Supported: timer, 100rel\r\nSession-Expires: 90;refresher=uac\r\n", "k: timer\r\nx: 4294967296\r\nRequire: ,,\r\n",
		"Replaces: b;to-tag=2;from-tag=3;early-only\r\n", "Replaces: ;;=\r\nReplaces: b\r\n", "RAck: 4294967296 1 INVITE\r\n",
		"P-Asserted-Identity: <sip:+4930@x>, <tel:1>\r\nPrivacy: id\r\n", "P-Asserted-Identity: \"\\\"\r\nPrivacy:\r\n",
		`Authorization: Digest username="bob", realm="voxgate", nonce="n", uri="sip:x", qop=auth, nc=ffffffff, cnonce="", response=""` +
			"\r\n",
		"Record-Route: <sip:a;lr>, <sip:b>\r\nContact: *\r\n", "Contact: <sip:ada@[::1]:0>\r\n",
	} {
		f.Add([]byte(head + headers + "Content-Length: 0\r\n\r\n"))
	}
	agent, err := New(Options{Trunks: []*Trunk{{Username: "bob", Password: "secret"}}, Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { agent.Close(nil) })
	trunk := agent.gate.trunks[0]
	parser := sip.NewParser()
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parser.ParseSIP(text)
		req, ok := m.(*sip.Request)
		if err != nil || !ok || req.From() == nil || req.To() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil {
			return
		}
		if r, ok := requestedTimer(req); ok && (r.every < 0 || r.every > 0 && r.every < minSessionInterval) {
			t.Errorf("a session timer of %v", r.every)
		}
		for _, option := range missingOptions(req, extensions) {
			if option == "" || supportsOption(req, option) != requiresOption(req, option) {
				t.Errorf("wants %q", option)
			}
		}
		c := newCall(agent.core, trunk, dialogFromRequest(req, sip.Uri{}), quiet)
		if old, _, refused := agent.FindReplaced(c); old != nil || refused == nil && len(req.GetHeaders("Replaces")) > 0 {
			t.Error("a call is replaced that is not there")
		}
		if r := agent.gate.admitRequest(req, netip.MustParseAddr("192.0.2.9"), agent.gate.trunks); r.trunk != nil {
			t.Error("let in")
		}
		if prompt := partyOf(req, true, nil).PromptData(); len(prompt) > 2000 || strings.Count(prompt, "\n") != 1 {
			t.Errorf("the prompt about the caller: %q", prompt)
		}
		c.dialog.newRequest(sip.BYE)
	})
}
