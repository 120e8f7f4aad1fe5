package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	runtimemetrics "runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/filewatch"
	"voxgate/signaling/access"
)

// rereadFile is a file that is read again when it changes.
type rereadFile struct {
	name string
	text func(version int) []byte
	open func(t *testing.T, file string, log *slog.Logger) (has func(version int) bool) // has reports whether a version is in effect
}

// fileFaults returns functions that damage a file like an interrupted writer, an editor or a volume. Each leaves half of the
// version next, or replaces the file by something else of the same name.
func fileFaults() map[string]func(file string, next []byte) error {
	write := func(change func([]byte) []byte) func(string, []byte) error {
		return func(file string, next []byte) error { return os.WriteFile(file, change(next), 0o600) }
	}
	instead := func(make func(file string) error) func(string, []byte) error {
		return func(file string, _ []byte) error { return errors.Join(os.Remove(file), make(file)) }
	}
	return map[string]func(string, []byte) error{
		"empty":                  write(func([]byte) []byte { return nil }),
		"white space":            write(func([]byte) []byte { return []byte("\n\n") }),
		"the first line":         write(func(b []byte) []byte { return b[:strings.IndexByte(string(b), '\n')+1] }),
		"the first fifth":        write(func(b []byte) []byte { return b[:len(b)/5] }),
		"the first two thirds":   write(func(b []byte) []byte { return b[:len(b)*2/3] }),
		"zeros of the length":    write(func(b []byte) []byte { return make([]byte, len(b)) }),
		"binary noise":           write(func([]byte) []byte { return []byte("\x00\xff\xfe\x80{[") }),
		"a conflict of versions": write(func(b []byte) []byte { return append([]byte("<<<<<<< HEAD\n"), b...) }),
		"a folder":               instead(func(file string) error { return os.Mkdir(file, 0o700) }),
		"a link to nothing":      instead(func(file string) error { return os.Symlink(file+".gone", file) }),
		"a link to itself":       instead(func(file string) error { return os.Symlink(file, file) }),
		"a named pipe":           instead(func(file string) error { return syscall.Mkfifo(file, 0o600) }),
		"4 GB": instead(func(file string) error {
			return errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 4<<30))
		}),
		"a file removed in between": instead(func(string) error { return nil }),
	}
}

// TestHalfWrittenFiles leaves watched files half written, or replaces them by something else. The previous version
// stays in effect, the next complete one is used within two seconds, and nothing hangs.
func TestHalfWrittenFiles(t *testing.T) {
	for _, f := range []rereadFile{keysFile(), agentFile(), certificateFile(t), authoritiesFile(t)} {
		for fault, apply := range fileFaults() {
			if filepath.Ext(f.name) == ".pem" && strings.HasPrefix(fault, "a conflict") {
				continue // PEM may have any text between its blocks
			}
			t.Run(f.name+"/"+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					folder := t.TempDir()
					file := filepath.Join(folder, f.name)
					replace := func(version int) {
						t.Helper()
						err := errors.Join(os.RemoveAll(file), os.WriteFile(file+".new", f.text(version), 0o600), os.Rename(file+".new", file))
						if err != nil {
							t.Fatal(err)
						}
					}
					replace(1)
					var log strings.Builder
					has := f.open(t, file, slog.New(slog.NewTextHandler(&log, nil)))
					if !has(1) {
						t.Fatal("the first version is not in effect")
					}
					if err := apply(file, f.text(2)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Second)
					before := allocatedBytes()
					if !has(1) && !(f.name == "desk.md" && strings.HasSuffix(fault, "in between")) { // without its file, no agent
						t.Errorf("the version before is not in effect:\n%s", log.String())
					}
					if log.Len() == 0 {
						t.Error("the log does not say so")
					}
					if made := allocatedBytes() - before; made > 64<<20 {
						t.Errorf("%d MB were allocated", made>>20)
					}
					replace(3)
					time.Sleep(2 * time.Second)
					if !has(3) {
						t.Errorf("the next version is not in effect:\n%s", log.String())
					}
				})
			})
		}
	}
}

func keysFile() rereadFile {
	return rereadFile{
		"keys.json",
		func(version int) []byte {
			digest := sha256.Sum256(fmt.Appendf(nil, "vgk_%d", version))
			return fmt.Appendf(nil, "{\n  \"secret\": %q,\n  \"keys\": [{\"name\": \"a\", \"sha256\": \"%x\", \"may\": [\"talk\"]}]\n}\n",
				strings.Repeat("A", 43), digest)
		},
		func(t *testing.T, file string, log *slog.Logger) func(int) bool {
			gate, err := access.New(access.Options{Required: true, Keys: file, Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(gate.Close)
			return func(version int) bool {
				request := &http.Request{Header: http.Header{"Authorization": {fmt.Sprintf("Bearer vgk_%d", version)}}}
				return access.From(gate.WithClient(request)).Authorize(&bridge.SessionRequest{}, "") == nil
			}
		},
	}
}

func agentFile() rereadFile {
	return rereadFile{
		"desk.md",
		func(version int) []byte {
			return fmt.Appendf(nil, "---\nnumbers: ['%d']\ngreeting: 'Hello from the desk of the house.'\n---\nPrompt.\n", version)
		},
		func(t *testing.T, file string, log *slog.Logger) func(int) bool {
			folder, err := agents.Open(filepath.Dir(file), "", log)
			if err != nil {
				t.Fatal(err)
			}
			return func(version int) bool {
				list := folder.PhoneAgents("sip")
				return len(list) == 1 && list[0].Numbers[0] == fmt.Sprint(version)
			}
		},
	}
}

// certificates returns a function for the PEM of a certificate with its key; the serial number is the version.
func certificates(t *testing.T) func(version int) []byte {
	versions := map[int][]byte{}
	for version := 1; version <= 3; version++ {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(version)), Subject: pkix.Name{CommonName: fmt.Sprint(version)}, IsCA: true, BasicConstraintsValid: true,
			NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"gateway.test"},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		versions[version] = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	}
	return func(version int) []byte { return versions[version] }
}

// certificateFile returns a file with both certificate and key, as some ACME clients write it.
func certificateFile(t *testing.T) rereadFile {
	return rereadFile{"cert.pem", certificates(t), func(t *testing.T, file string, log *slog.Logger) func(int) bool {
		pair, err := filewatch.NewCertificate(file, file, log)
		if err != nil {
			t.Fatal(err)
		}
		return func(version int) bool {
			newest, _ := pair.GetCertificate(&tls.ClientHelloInfo{})
			return newest.Leaf.SerialNumber.Int64() == int64(version)
		}
	}}
}

// authoritiesFile returns a file with two certificate authorities: one that never changes, and then that of the version.
func authoritiesFile(t *testing.T) rereadFile {
	text := certificates(t)
	certificate := func(version int) []byte {
		block, _ := pem.Decode(text(version))
		return pem.EncodeToMemory(block)
	}
	return rereadFile{
		"ca.pem", func(version int) []byte { return append(certificate(2), certificate(version)...) },
		func(t *testing.T, file string, log *slog.Logger) func(int) bool {
			authorities, err := filewatch.NewAuthorities(file, nil, log)
			if err != nil {
				t.Fatal(err)
			}
			return func(version int) bool {
				block, _ := pem.Decode(text(version))
				one, err := x509.ParseCertificate(block.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				_, err = one.Verify(x509.VerifyOptions{Roots: authorities.Current(), CurrentTime: one.NotAfter.Add(-time.Minute)})
				return err == nil
			}
		},
	}
}

// allocatedBytes returns the number of bytes that the process has allocated on the heap since its start.
func allocatedBytes() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}
