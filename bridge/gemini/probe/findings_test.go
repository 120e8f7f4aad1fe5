package probe_test

import (
	"reflect"
	"testing"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/probe"
)

// TestFindings checks which findings the gateway takes from the results of a report.
func TestFindings(t *testing.T) {
	const (
		resumes = "remembers what was said before the last resume but one"
		long    = "resumes with an instruction of 4 KB"
		ends    = "the end of the stream ends a turn"
	)
	got := probe.Report{Results: []probe.Result{
		{Model: "a", Name: resumes, Verdict: probe.Different, Found: []string{"gives a handle", "resumes", "resumes", "says plum"}},
		{Model: "a", Name: ends, Verdict: probe.AsAssumed, Found: []string{"silent"}},
		{Model: "b", Name: resumes, Verdict: probe.AsAssumed, Found: []string{"gives a handle", "resumes", "resumes", "does not say plum"}},
		{Model: "b", Name: ends, Verdict: probe.Learned, Found: []string{"answers"}},
		{Model: "c", Name: resumes, Verdict: probe.Different, Found: []string{"gives a handle", "refused with 1008"}},
		{Model: "c", Name: ends, Verdict: probe.Different, Found: nil},
		{Model: "b", Name: long, Verdict: probe.Learned, Found: []string{"gives a handle", "resumes", "does not say plum"}},
		{Model: "d", Name: resumes, Verdict: probe.Unavailable, Found: []string{"says plum"}},
	}}.Findings()
	want := map[string]liveconfig.Findings{
		"a": {ForgetfulHandles: new(false), SilenceRequired: new(true)},
		"b": {ForgetfulHandles: new(true), ForgetfulWithLongInstruction: new(true), SilenceRequired: new(false)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v", got)
	}
}
