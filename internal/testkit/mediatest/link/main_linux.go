// Command link connects two network namespaces by a simulated bad network, for web/test/network.test.mjs. It needs
// root, ip and /dev/net/tun.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"voxgate/internal/testkit/mediatest"
)

// linkSettings is one JSON line on stdin, which changes the link. A direction without a field has no impairment.
type linkSettings struct {
	Up   mediatest.Impairment `json:"up"`   // from the first namespace to the second
	Down mediatest.Impairment `json:"down"` // from the second namespace to the first
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runLink(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "link:", err)
		os.Exit(1)
	}
}

// runLink connects two namespaces by a bad network, and applies settings from stdin until its end. It prints {"ends": …}
// after each change, or {"impossible": reason}.
func runLink(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	out := json.NewEncoder(stdout)
	if err := checkLinkPossible(); err != nil {
		return out.Encode(map[string]string{"impossible": err.Error()})
	}
	l, err := openLink(fmt.Sprintf("vg%d", os.Getpid()), 1)
	defer func() { err = errors.Join(err, l.close()) }()
	if err != nil {
		return err
	}
	orders, ended := make(chan linkSettings), make(chan error, 1)
	go func() { // ends with stdin, or with the process
		for in := json.NewDecoder(stdin); ; {
			var o linkSettings
			if err := in.Decode(&o); err != nil {
				ended <- err
				return
			}
			orders <- o
		}
	}()
	for {
		if err := out.Encode(map[string]any{"ends": l.ends}); err != nil {
			return err
		}
		select {
		case o := <-orders:
			l.pipes[0].SetImpairment(o.Up)
			l.pipes[1].SetImpairment(o.Down)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("order: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

// link connects two network namespaces. They must have no other link, because the kernel could route replies over that
// link.
type link struct {
	ends    [2]linkEnd // packets from the first end go up
	pipes   [2]*mediatest.Pipe
	devices [2]*os.File
	stop    context.CancelFunc
	running sync.WaitGroup
}

// linkEnd is a network namespace, for `ip netns exec`, and its address on the link.
type linkEnd struct {
	Namespace string     `json:"namespace"`
	Addr      netip.Addr `json:"addr"`
}

// checkLinkPossible returns an error if this machine cannot create a link.
func checkLinkPossible() error {
	if os.Geteuid() != 0 {
		return errors.New("namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return err
	}
	device, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return device.Close()
}

// openLink creates two namespaces, whose names begin with prefix, and a perfect link. It needs root. The caller must
// close the link, even if openLink returns an error.
func openLink(prefix string, seed uint64) (*link, error) {
	ctx, stop := context.WithCancel(context.Background())
	l := &link{stop: stop}
	for i, side := range []string{"a", "b"} {
		// 10.97/16 is private (RFC 1918) and not visible outside the namespaces.
		end := linkEnd{Namespace: prefix + "-" + side, Addr: netip.AddrFrom4([4]byte{10, 97, 0, byte(i + 1)})}
		err := runIP("netns", "add", end.Namespace)
		if err != nil {
			return l, err
		}
		l.ends[i] = end
		if l.devices[i], err = createTUN(prefix+side, end); err != nil {
			return l, err
		}
	}
	for i := range l.pipes {
		from, to := l.devices[i], l.devices[1-i]
		p := mediatest.NewPipe(mediatest.NewPath(seed, uint64(i)), func(p mediatest.Packet) { to.Write(p.Data) }) // an error counts as loss
		l.pipes[i] = p
		l.running.Go(func() { p.Run(ctx) })
		l.running.Go(func() {
			for buf := make([]byte, mediatest.MaxDatagram); ; {
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				p.Put(buf[:n], nil)
			}
		})
	}
	return l, nil
}

// close removes the devices and the namespaces. A namespace exists until its last process has ended.
func (l *link) close() error {
	l.stop()
	var errs []error
	for _, d := range l.devices {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	l.running.Wait()
	for _, end := range l.ends {
		if end.Namespace != "" {
			errs = append(errs, runIP("netns", "delete", end.Namespace))
		}
	}
	return errors.Join(errs...)
}

// createTUN creates a TUN device, moves it into its namespace, and returns its file.
func createTUN(name string, end linkEnd) (*os.File, error) {
	const mtu = "1400" // a little below Ethernet's, as on many real paths
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("TUN device %s: %w", name, err)
	}
	device := os.NewFile(uintptr(fd), name)
	for _, args := range [][]string{
		{"link", "set", "dev", name, "netns", end.Namespace},
		{"-n", end.Namespace, "link", "set", "dev", "lo", "up"},
		{"-n", end.Namespace, "addr", "add", netip.PrefixFrom(end.Addr, 24).String(), "dev", name},
		{"-n", end.Namespace, "link", "set", "dev", name, "mtu", mtu, "up"},
	} {
		if err := runIP(args...); err != nil {
			return nil, errors.Join(err, device.Close())
		}
	}
	return device, nil
}

func runIP(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
