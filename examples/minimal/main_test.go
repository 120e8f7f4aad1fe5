package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
)

// buffer is written by one goroutine and read by another.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.b.Bytes())
}

// waitFor waits until ok.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// startGateway starts the program with its emulator, and returns its address.
func startGateway(t *testing.T) string {
	binary := filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.Command("go", "build", "-o", binary, "voxgate/gateway").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary, "serve")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "VOXGATE_ADDR=127.0.0.1:0", "VOXGATE_DRAIN=0"}
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if m := regexp.MustCompile(`msg="?listening"?.* url="?http://([^\s"/]+)`).FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, log)
			return m[1]
		}
	}
	t.Fatal("the gateway did not start")
	return ""
}

// wire is a connection between the app and the gateway that can be cut.
type wire struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l}
	t.Cleanup(func() { l.Close(); w.cut() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, near, far)
			w.mu.Unlock()
			go io.Copy(near, far)
			go io.Copy(far, near)
		}
	}()
	return w
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

// A question is heard and answered, and after a lost connection another one, in the same conversation.
func TestTalk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newWire(t, startGateway(t))
	var seen, ear buffer
	mic, microphone := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := talk(ctx, "ws://"+w.Addr().String()+"/ws", "", mic, &ear, &seen)
		mic.CloseWithError(io.ErrClosedPipe) // nobody listens any more
		ended <- err
	}()
	ask := func() {
		heard := len(ear.Bytes())
		before := strings.Count(string(seen.Bytes()), "You said")
		binary.Write(microphone, binary.LittleEndian, mediatest.SynthesizeSpeech(time.Second, rate))
		go microphone.Write(make([]byte, 2*rate*2)) // 2 s in which nobody speaks; the next question waits behind them
		waitFor(t, "the answer", func() bool {
			return len(ear.Bytes()) > heard+rate && strings.Count(string(seen.Bytes()), "You said") > before
		})
	}
	ask()
	w.cut()
	ask()
	stop()
	microphone.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(seen.Bytes()), "of speech") {
		t.Errorf("got %q", seen.Bytes())
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := talk(t.Context(), "ws://"+l.Addr().String(), "", strings.NewReader(""), io.Discard, io.Discard); err == nil {
		t.Error("no error")
	}
}
