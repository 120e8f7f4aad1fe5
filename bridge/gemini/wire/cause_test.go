package wire_test

import (
	"testing"

	"voxgate/bridge/gemini/wire"
)

func TestErrorCauses(t *testing.T) {
	for _, c := range []struct {
		code   int
		reason string
		want   wire.Cause
	}{
		{1000, "", wire.Lost},
		{1001, "", wire.Lost},
		{1006, "connection lost: EOF", wire.Lost},
		{1007, "Request contains an invalid argument.", wire.Fatal},
		{1007, `Invalid JSON payload received. Unknown name "proactivity" at 'setup': Cannot find field.`, wire.Fatal},
		{1007, "Thinking level must be specified for this model", wire.Fatal},
		{1007, "Function response scheduling is not supported for this model", wire.Fatal},
		{1007, "Please use a valid role: user, model.", wire.Fatal},
		{1007, "Invalid session handle", wire.StaleHandle},
		{1007, "API key not valid. Please pass a valid API key.", wire.Auth},
		{1008, "models/x is not found for API version v1beta, or is not supported for bidiGenerateContent.", wire.Fatal},
		{1008, "BidiGenerateContent session not found", wire.StaleHandle},
		{1008, "Requested entity was not found.", wire.StaleHandle},
		{1008, "Operation is not implemented, or supported, or enabled.", wire.Fatal},
		{1008, "Publisher model was not found or your project does not have access to it.", wire.Fatal},
		{1008, "The operation was aborted.", wire.Lost},
		{1008, "Token has been used too many times or has expired for new sessions.", wire.Auth},
		{1008, "Your API key was reported as leaked.", wire.Auth},
		{1011, "Internal error encountered.", wire.Lost},
		{1011, "Deadline expired before operation could complete.", wire.Lost},
		{1011, "The service is currently unavailable.", wire.Lost},
		{1011, "RESOURCE_EXHAUSTED", wire.Quota},
		{1011, "Resource has been exhausted (e.g. check quota).", wire.Quota},
		{1011, "You exceeded your current quota, please check your plan", wire.Quota},
		{1012, "", wire.Lost},
		{4000, "whatever", wire.Lost},
	} {
		if got := (&wire.CloseError{Code: c.code, Reason: c.reason}).Cause(); got != c.want {
			t.Errorf("%d %s: %v, want %v", c.code, c.reason, got, c.want)
		}
	}
	for _, c := range []struct {
		status int
		body   string
		want   wire.Cause
	}{
		{400, "API key not valid. Please pass a valid API key.", wire.Auth},
		{400, "Request contains an invalid argument.", wire.Fatal},
		{401, "", wire.Auth},
		{403, "", wire.Auth},
		{404, "", wire.Fatal},
		{408, "", wire.Lost},
		{429, "", wire.Quota},
		{500, "", wire.Lost},
		{503, "", wire.Lost},
		{0, "", wire.Lost},
	} {
		if got := (&wire.HandshakeError{Status: c.status, Body: c.body}).Cause(); got != c.want {
			t.Errorf("HTTP %d %s: %v, want %v", c.status, c.body, got, c.want)
		}
		if got := (&wire.ServerError{Code: c.status, Message: c.body}).Cause(); got != c.want {
			t.Errorf("error %d %s: %v, want %v", c.status, c.body, got, c.want)
		}
	}
	if got := (&wire.ServerError{Status: "RESOURCE_EXHAUSTED"}).Cause(); got != wire.Quota {
		t.Errorf("an error without a code is %v", got)
	}
}
