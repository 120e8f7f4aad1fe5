package environment_test

import (
	"strings"
	"testing"

	"voxgate/internal/environment"
)

// White space and byte order marks that Kubernetes, Docker and editors add to a secret are removed. Control characters and
// enclosing quotation marks are errors, which do not show the secret.
func TestExpandCleansValues(t *testing.T) {
	for value, want := range map[string]string{
		"s3cret": "s3cret", "s3cret\n": "s3cret", "s3cret\r\n": "s3cret", " s3cret\t": "s3cret", "\ufeffs3cret": "s3cret", "\n\n": "",
		"s3 cret": "s3 cret", `s3"cret`: `s3"cret`, `"s3cret`: `"s3cret`, `{"a":"b"}`: `{"a":"b"}`, "": "",
		"s3\ncret": "error", "s3\x1bcret": "error", `"s3cret"`: "error", `'s3cret'`: "error", "s3\x7fcret": "error",
	} {
		t.Setenv("SECRET_OF_TEST", value)
		got, err := environment.Expand("<${SECRET_OF_TEST}>")
		if want == "error" {
			if err == nil || !strings.Contains(err.Error(), "SECRET_OF_TEST") || strings.Contains(err.Error(), "cret") {
				t.Errorf("%q: %q, %v", value, got, err)
			}
			continue
		}
		if err != nil || got != "<"+want+">" {
			t.Errorf("%q: %q, %v; want %q", value, got, err, want)
		}
	}
	if _, err := environment.Expand("${NOT_IN_THE_ENVIRONMENT}"); err == nil || !strings.Contains(err.Error(), "NOT_IN_THE_ENVIRONMENT") {
		t.Error("missing variable:", err)
	}
}
