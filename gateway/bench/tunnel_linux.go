package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"voxgate/media/mediatest"
)

// tunnelMTU is a little less than Ethernet's, as on many a real path.
const tunnelMTU = 1400

// tunnel is a network of two namespaces, joined by a link. There is no other link between them: with a second one the
// kernel would send replies by whichever it likes.
type tunnel struct {
	Ends    [2]tunnelEnd // what the first sends goes up
	pipes   [2]*pipe
	devices [2]*os.File
	stop    context.CancelFunc
	running sync.WaitGroup
}

// tunnelEnd is a namespace, for `ip netns exec`, and its address on the link.
type tunnelEnd struct {
	Namespace string     `json:"namespace"`
	Addr      netip.Addr `json:"addr"`
}

// tunnelPossible says why there can be no tunnel on this machine; nil if there can.
func tunnelPossible() error {
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

// openTunnel makes two namespaces, whose names begin with prefix, and a link without faults between them. It needs root.
func openTunnel(prefix string, seed uint64) (t *tunnel, err error) {
	ctx, stop := context.WithCancel(context.Background())
	t = &tunnel{stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for i, side := range []string{"a", "b"} {
		// 10.97/16 is private (RFC 1918), and of no concern to anybody outside of the namespaces.
		end := tunnelEnd{Namespace: prefix + "-" + side, Addr: netip.AddrFrom4([4]byte{10, 97, 0, byte(i + 1)})}
		if err := ip("netns", "add", end.Namespace); err != nil {
			return nil, err
		}
		t.Ends[i] = end
		if t.devices[i], err = openDevice(prefix+side, end); err != nil {
			return nil, err
		}
	}
	for i := range t.pipes {
		from, to := t.devices[i], t.devices[1-i]
		p := newPipe(mediatest.NewPath(seed, uint64(i)), func(p packet) {
			to.Write(p.data) // an error is a loss
		})
		t.pipes[i] = p
		t.running.Go(func() { p.run(ctx) })
		t.running.Go(func() {
			buf := make([]byte, maxDatagram)
			for {
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				p.put(buf[:n], nil)
			}
		})
	}
	return t, nil
}

// openDevice makes a TUN device and moves it into its namespace. Its file stays with us.
func openDevice(name string, end tunnelEnd) (*os.File, error) {
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
		{"-n", end.Namespace, "link", "set", "dev", name, "mtu", fmt.Sprint(tunnelMTU), "up"},
	} {
		if err := ip(args...); err != nil {
			return nil, errors.Join(err, device.Close())
		}
	}
	return device, nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Set changes the impairments of the two directions.
func (t *tunnel) Set(up, down mediatest.Impairment) {
	t.pipes[0].Set(up)
	t.pipes[1].Set(down)
}

// Close removes the devices and the namespaces. Processes that are still in one keep it until they end.
func (t *tunnel) Close() error {
	t.stop()
	var errs []error
	for _, d := range t.devices {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	t.running.Wait()
	for _, end := range t.Ends {
		if end.Namespace != "" {
			errs = append(errs, ip("netns", "delete", end.Namespace))
		}
	}
	return errors.Join(errs...)
}
