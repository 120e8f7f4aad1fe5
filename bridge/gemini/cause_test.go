package gemini_test

import (
	"testing"

	"voxgate/bridge/gemini"
)

func TestCauses(t *testing.T) {
	for _, c := range []struct {
		code   int
		reason string
		want   gemini.Cause
	}{
		{1000, "", gemini.Lost},
		{1001, "", gemini.Lost},
		{1006, "connection lost: EOF", gemini.Lost},
		{1007, "Request contains an invalid argument.", gemini.Fatal},
		{1007, `Invalid JSON payload received. Unknown name "proactivity" at 'setup': Cannot find field.`, gemini.Fatal},
		{1007, "Thinking level must be specified for this model", gemini.Fatal},
		{1007, "Function response scheduling is not supported for this model", gemini.Fatal},
		{1007, "Please use a valid role: user, model.", gemini.Fatal},
		{1007, "Invalid session handle", gemini.StaleHandle},
		{1007, "API key not valid. Please pass a valid API key.", gemini.Auth},
		{1008, "models/x is not found for API version v1beta, or is not supported for bidiGenerateContent.", gemini.Fatal},
		{1008, "BidiGenerateContent session not found", gemini.StaleHandle},
		{1008, "Requested entity was not found.", gemini.StaleHandle},
		{1008, "Operation is not implemented, or supported, or enabled.", gemini.Fatal},
		{1008, "Publisher model was not found or your project does not have access to it.", gemini.Fatal},
		{1008, "The operation was aborted.", gemini.Lost},
		{1008, "Token has been used too many times or has expired for new sessions.", gemini.Auth},
		{1008, "Your API key was reported as leaked.", gemini.Auth},
		{1011, "Internal error encountered.", gemini.Lost},
		{1011, "Deadline expired before operation could complete.", gemini.Lost},
		{1011, "The service is currently unavailable.", gemini.Lost},
		{1011, "RESOURCE_EXHAUSTED", gemini.Quota},
		{1011, "Resource has been exhausted (e.g. check quota).", gemini.Quota},
		{1011, "You exceeded your current quota, please check your plan", gemini.Quota},
		{1012, "", gemini.Lost},
		{4000, "whatever", gemini.Lost},
	} {
		if got := (&gemini.CloseError{Code: c.code, Reason: c.reason}).Cause(); got != c.want {
			t.Errorf("%d %s: %v, want %v", c.code, c.reason, got, c.want)
		}
	}
	for _, c := range []struct {
		status int
		body   string
		want   gemini.Cause
	}{
		{400, "API key not valid. Please pass a valid API key.", gemini.Auth},
		{400, "Request contains an invalid argument.", gemini.Fatal},
		{401, "", gemini.Auth},
		{403, "", gemini.Auth},
		{404, "", gemini.Fatal},
		{408, "", gemini.Lost},
		{429, "", gemini.Quota},
		{500, "", gemini.Lost},
		{503, "", gemini.Lost},
		{0, "", gemini.Lost},
	} {
		if got := (&gemini.HandshakeError{Status: c.status, Body: c.body}).Cause(); got != c.want {
			t.Errorf("HTTP %d %s: %v, want %v", c.status, c.body, got, c.want)
		}
		if got := (&gemini.ServerError{Code: c.status, Message: c.body}).Cause(); got != c.want {
			t.Errorf("error %d %s: %v, want %v", c.status, c.body, got, c.want)
		}
	}
	if got := (&gemini.ServerError{Status: "RESOURCE_EXHAUSTED"}).Cause(); got != gemini.Quota {
		t.Errorf("an error without a code is %v", got)
	}
}
