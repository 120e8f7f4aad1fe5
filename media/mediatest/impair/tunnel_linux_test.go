package impair

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// helper makes this binary a program to be run inside of a namespace.
const helper = "IMPAIR_TEST_HELPER"

func TestMain(m *testing.M) {
	var err error
	switch addr := os.Getenv(helper + "_ADDR"); os.Getenv(helper) {
	case "":
		os.Exit(m.Run())
	case "echo":
		err = echo(addr)
	case "ask":
		err = ask(addr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func echo(addr string) error {
	c, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	buf := make([]byte, 100)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(buf[:n], from); err != nil {
			return err
		}
	}
}

// ask prints how long the echo takes.
func ask(addr string) error {
	c, err := net.Dial("udp4", addr)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = c.Write([]byte("?"))
	if err == nil {
		err = c.SetReadDeadline(began.Add(time.Second))
	}
	if err == nil {
		_, err = c.Read(make([]byte, 100))
	}
	if err == nil {
		fmt.Println(time.Since(began))
	}
	return err
}

func inside(end End, what, addr string) *exec.Cmd {
	c := exec.Command("ip", "netns", "exec", end.Namespace, os.Args[0])
	c.Env = append(os.Environ(), helper+"="+what, helper+"_ADDR="+addr)
	return c
}

func TestTunnel(t *testing.T) {
	if err := TunnelPossible(); err != nil {
		t.Skip(err)
	}
	prefix := fmt.Sprintf("vgt%d", os.Getpid()%100000)
	link, err := OpenTunnel(prefix, 1)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort(link.Ends[1].Addr.String(), "7")
	far := inside(link.Ends[1], "echo", addr)
	ready, err := far.StdoutPipe()
	if err == nil {
		err = far.Start()
	}
	if err == nil {
		_, err = ready.Read(make([]byte, 10))
	}
	if err != nil {
		t.Fatal(errors.Join(err, link.Close()))
	}
	trip := func() (time.Duration, error) {
		out, err := inside(link.Ends[0], "ask", addr).Output()
		if err != nil {
			return 0, err
		}
		return time.ParseDuration(strings.TrimSpace(string(out)))
	}
	if _, err := trip(); err != nil {
		t.Errorf("no way through: %v", err)
	}
	link.Set(Profile{Delay: 40 * time.Millisecond}, Profile{Delay: 60 * time.Millisecond})
	if took, err := trip(); err != nil || took < 100*time.Millisecond {
		t.Errorf("a round trip of %v, %v; want 100 ms", took, err)
	}
	link.Set(Profile{}, Profile{Down: true})
	if _, err := trip(); err == nil {
		t.Error("a way through where there is none")
	}
	far.Process.Kill()
	far.Wait()
	if err := link.Close(); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("ip", "netns", "list").Output(); err != nil || strings.Contains(string(out), prefix) {
		t.Errorf("left behind: %s, %v", out, err)
	}
}
