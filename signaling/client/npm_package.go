package client

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
)

// BuildPackage builds the npm package of files like "npm pack", for npm install https://HOST/voxgate.tgz. version
// replaces the version in package.json; "" keeps the one in the file.
func BuildPackage(files fs.FS, version string) ([]byte, error) {
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
	w := tar.NewWriter(z)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err == nil && name == "package.json" && version != "" {
			content, err = setVersion(content, version)
		}
		if err != nil {
			return err
		}
		// The header has no modification time, so that the same files give the same package: lock files contain its checksum.
		header := tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(&header); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("building the npm package: %w", err)
	}
	for _, c := range []io.Closer{w, z} {
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	return packed.Bytes(), nil
}

// setVersion returns a package.json with this version.
func setVersion(manifest []byte, version string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(manifest, &fields); err != nil {
		return nil, err
	}
	text, err := json.Marshal(version)
	if err != nil {
		return nil, err
	}
	fields["version"] = text
	return json.MarshalIndent(fields, "", "  ")
}
