package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxFrame bounds one message of a server, in bytes. It limits memory, because the SDK reads a whole message before it
// parses it, which takes several times the size. For results, the gateway has a lower limit.
const maxFrame = 1 << 20

// errTooLong reports a message longer than maxFrame.
var errTooLong = fmt.Errorf("it has sent a message longer than %d bytes", maxFrame)

// boundedBody is the body of a server's HTTP response. A read fails if a message in the body is too long. If the
// response belongs to a tool call, the body is closed when the call ends.
type boundedBody struct {
	io.ReadCloser
	isStream bool // the body is a stream of events, each ended by an empty line
	size     int  // bytes of the current message
	atStart  bool // the next byte is the first of a line
	release  func() bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.size++
		switch {
		case !b.isStream || c == '\r':
		case c == '\n' && b.atStart:
			b.size = 0
		default:
			b.atStart = c == '\n'
		}
		if b.size > maxFrame {
			return 0, errTooLong
		}
	}
	return n, err
}

func (b *boundedBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

// boundBody limits the length of the messages in the body of a response. If callCtx is not nil, it is the context of a
// tool call, and the body is closed when it is done.
func boundBody(answer *http.Response, callCtx context.Context) {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	body := &boundedBody{ReadCloser: answer.Body, isStream: kind == "text/event-stream", atStart: true, release: func() bool { return true }}
	if callCtx != nil {
		inner := answer.Body
		body.release = context.AfterFunc(callCtx, func() { _ = inner.Close() })
	}
	answer.Body = body
}

// progressToken returns the progress token of the tool call in a request to the server, or "".
func progressToken(r *http.Request) string {
	if r.Method != http.MethodPost || r.GetBody == nil {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	var message struct {
		Method string `json:"method"`
		Params struct {
			Meta struct {
				Token string `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(body); err != nil || json.Unmarshal(text.Bytes(), &message) != nil || message.Method != "tools/call" {
		return ""
	}
	return message.Params.Meta.Token
}

// commandTransport runs a server as a child process, and limits the length of the lines that the child writes.
type commandTransport struct {
	cmd      *exec.Cmd
	noiseLog *lines
}

// Connect starts the child process.
func (t *commandTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	stdout, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stdin, err := t.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	child := &childInput{WriteCloser: stdin, cmd: t.cmd}
	messages := &messageReader{input: bufio.NewReader(stdout), noiseLog: t.noiseLog}
	io := &mcp.IOTransport{Reader: io.NopCloser(messages), Writer: child, MaxLineLength: maxFrame}
	return io.Connect(ctx)
}

// messageReader extracts the messages from a child's output. Many servers also print banners and log lines to this
// output. messageReader logs these lines and skips them.
type messageReader struct {
	input    *bufio.Reader
	noiseLog *lines
	line     []byte // unread rest of a message
}

func (r *messageReader) Read(p []byte) (int, error) {
	for len(r.line) == 0 {
		line, err := r.readLine()
		if begin := indexMessageStart(line); begin >= 0 {
			_, _ = r.noiseLog.Write(append(line[:begin:begin], '\n')) // never fails
			r.line = line[begin:]
		} else {
			_, _ = r.noiseLog.Write(line)
		}
		if err != nil && len(r.line) == 0 {
			return 0, err
		}
	}
	n := copy(p, r.line)
	r.line = r.line[n:]
	return n, nil
}

// readLine returns a line including its newline. The last line may have no newline. A line longer than maxFrame is an
// error.
func (r *messageReader) readLine() (line []byte, err error) {
	for {
		part, err := r.input.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxFrame {
			return nil, errTooLong
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// indexMessageStart returns the index at which a JSON-RPC message begins in a line, or -1. Other text may come before
// the message, because the server may have printed text without a newline.
func indexMessageStart(line []byte) int {
	first := len(line) - len(bytes.TrimLeft(line, " \t\r"))
	for _, begin := range []int{first, bytes.Index(line, []byte(`{"`)), bytes.LastIndex(line, []byte(`{"jsonrpc"`))} {
		if begin < 0 || begin == len(line) || line[begin] != '{' && line[begin] != '[' {
			continue
		}
		if bytes.Contains(line[begin:], []byte(`"jsonrpc"`)) && json.Valid(line[begin:]) {
			return begin
		}
	}
	return -1
}

// childInput is the stdin of a child. Close closes it, and waits for the child to end. If the child does not end within
// grace, Close sends SIGTERM, and after another grace SIGKILL.
type childInput struct {
	io.WriteCloser
	cmd *exec.Cmd
}

func (c *childInput) Close() error {
	if err := c.WriteCloser.Close(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, 0} {
		select {
		case err := <-done:
			return err
		case <-time.After(grace):
			if signal != 0 {
				_ = c.cmd.Process.Signal(signal) // fails if the process has just ended
			}
		}
	}
	return errors.New("the process does not exit")
}
