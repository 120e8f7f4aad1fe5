package client_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"voxgate/signaling/client"
)

// The library is served as an npm package with the gateway's version, and is identical each time.
func TestPackage(t *testing.T) {
	files := fstest.MapFS{
		"package.json":    {Data: []byte(`{"name": "voxgate", "version": "0.1.0"}`)},
		"declared/a.d.ts": {Data: []byte("export {};")},
	}
	library, err := client.BuildPackage(files, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := client.BuildPackage(files, "1.2.3"); err != nil || !bytes.Equal(library, again) {
		t.Error("it is another package the next time")
	}
	if _, err := client.BuildPackage(fstest.MapFS{"package.json": {Data: []byte(`{`)}}, "1.2.3"); err == nil {
		t.Error("a package without a manifest that can be read")
	}
	site, err := client.ReadSite(nil)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	site.Handler(client.Status{}, library).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/voxgate.tgz", http.NoBody))
	if kind := answer.Header().Get("Content-Type"); kind != "application/gzip" || answer.Header().Get("ETag") == "" {
		t.Errorf("%v", answer.Header())
	}
	z, err := gzip.NewReader(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(content)
	}
	var manifest struct{ Name, Version string }
	err = json.Unmarshal([]byte(got["package/package.json"]), &manifest)
	if err != nil || manifest.Name != "voxgate" || manifest.Version != "1.2.3" {
		t.Errorf("%+v, %v", manifest, err)
	}
	if got["package/declared/a.d.ts"] != "export {};" || len(got) != 2 {
		t.Errorf("%v", got)
	}
}
