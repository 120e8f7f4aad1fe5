package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// parseList returns the Set function of a flag with comma-separated values. parse parses one value.
func parseList[T any](target *[]T, parse func(string) (T, error)) func(string) error {
	return func(v string) error {
		*target = nil
		for _, item := range strings.Split(v, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			value, err := parse(item)
			if err != nil {
				return err
			}
			*target = append(*target, value)
		}
		return nil
	}
}

func parseText(v string) (string, error) { return v, nil }

// listenAddress is the flag.Value of a host:port to listen on.
type listenAddress string

func (a *listenAddress) String() string { return string(*a) }

// Set implements flag.Value. It also accepts an IPv6 address without brackets, because Kubernetes expands
// $(POD_IP):9090 to fd00::5:9090.
func (a *listenAddress) Set(v string) error {
	if v == "" {
		*a = ""
		return nil
	}
	v = bracketIPv6(v)
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%q is not host:port", v)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q is not a port number from 0 to 65535", port)
	}
	*a = listenAddress(v)
	return nil
}

// bracketIPv6 adds the missing brackets to an IPv6 address with a port. It assumes that the port begins after the last
// colon.
func bracketIPv6(hostPort string) string {
	i := strings.LastIndexByte(hostPort, ':')
	if i < 0 {
		return hostPort
	}
	if address, err := netip.ParseAddr(hostPort[:i]); err != nil || !address.Is6() {
		return hostPort
	}
	return "[" + hostPort[:i] + "]" + hostPort[i:]
}

func parseProxy(v string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(v); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(v)
	if err != nil {
		return prefix, fmt.Errorf("%q is neither an address nor a range like 10.0.0.0/8", v)
	}
	return prefix, nil
}

// addressesOverlap reports whether a program cannot listen on both addresses at the same time.
func addressesOverlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	parse := func(host string) netip.Addr {
		switch host {
		case "":
			return netip.IPv6Unspecified()
		case "localhost":
			host = "127.0.0.1"
		}
		ip, _ := netip.ParseAddr(host)
		return ip.Unmap()
	}
	x, y := parse(hostA), parse(hostB)
	all := func(x, y netip.Addr) bool { return x == netip.IPv6Unspecified() || x.IsUnspecified() && y.Is4() }
	return hostA == hostB || x.IsValid() && y.IsValid() && (x == y || all(x, y) || all(y, x))
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
