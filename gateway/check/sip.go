package check

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"
)

// sipPause is the time before the first retransmission of an unanswered UDP request. It doubles after each
// retransmission. RFC 3261, section 17.1.2.2 calls it T1.
const sipPause = 500 * time.Millisecond

// checkSIP sends OPTIONS (RFC 3261, section 11.1) to a SIP listener. uri is its address, such as
// sip:voice.example.com;transport=tcp.
func (c *checkRun) checkSIP(ctx context.Context, uri string) (ok bool) {
	name := "SIP " + uri
	transport, at, err := parseSIPURI(uri)
	if err != nil {
		return c.addFailed(name, err.Error(), "It should look like sip:voice.example.com:5060 or sips:voice.example.com.")
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	conn, err := c.dialSIP(ctx, transport, at)
	if err != nil {
		return c.addFailed(name, err.Error(), cmp.Or(suggestTLSRemedy(err),
			"Let the port through the firewall, and have it among \"listen\" in the file that VOXGATE_SIP names."))
	}
	defer conn.Close()
	found := ""
	if t, ok := conn.(*tls.Conn); ok {
		left := time.Until(t.ConnectionState().PeerCertificates[0].NotAfter)
		found = fmt.Sprintf(", the certificate is good for %.0f days", left.Hours()/24)
	}
	began := time.Now()
	status, err := sendOptions(ctx, conn, transport, uri)
	switch {
	case err != nil && isTimeout(err):
		return c.addFailed(name, fmt.Sprintf("no answer within %v", stepTimeout),
			"The gateway answers only addresses that a trunk has in its \"from\" (docs/sip.md). From one of those: let "+
				strings.ToUpper(transport)+" to "+at+" through the firewall.")
	case err != nil:
		return c.addFailed(name, err.Error(), "Is it an address of \"listen\" in the file that VOXGATE_SIP names?")
	case !strings.HasPrefix(status, "200"):
		return c.addFailed(name, status, "Something else than the gateway answers there: a proxy that does not pass OPTIONS on, or another PBX.")
	}
	return c.addPassed(name, "%s after %v%s", status, time.Since(began).Round(10*time.Microsecond), found)
}

// parseSIPURI returns the transport and the address of a SIP URI.
func parseSIPURI(uri string) (transport, address string, err error) {
	scheme, rest, _ := strings.Cut(uri, ":")
	address, parameters, _ := strings.Cut(rest, ";")
	port := "5060"
	if transport = "udp"; scheme == "sips" {
		transport = "tls"
	}
	for p := range strings.SplitSeq(parameters, ";") {
		if value, ok := strings.CutPrefix(strings.ToLower(p), "transport="); ok {
			transport = value
		}
	}
	if transport == "tls" {
		port = "5061"
	}
	isSupported := transport == "udp" || transport == "tcp" || transport == "tls"
	if scheme != "sip" && scheme != "sips" || address == "" || strings.ContainsAny(address, "@/\r\n ") || !isSupported {
		return "", "", fmt.Errorf("%q is not the SIP URI of a gateway", uri)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), port)
	}
	return transport, address, nil
}

func (c *checkRun) dialSIP(ctx context.Context, transport, address string) (net.Conn, error) {
	if transport != "tls" {
		return (&net.Dialer{}).DialContext(ctx, transport, address)
	}
	config := c.tlsConfig()
	config.ServerName, _, _ = net.SplitHostPort(address)
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
}

// sendOptions sends OPTIONS, with retransmissions over UDP, and returns the status of the response.
func sendOptions(ctx context.Context, conn net.Conn, transport, uri string) (status string, err error) {
	us, id := conn.LocalAddr().String(), rand.Text()
	request := fmt.Appendf(nil, "OPTIONS %s SIP/2.0\r\nVia: SIP/2.0/%s %s;branch=z9hG4bK%s;rport\r\nMax-Forwards: 70\r\n"+
		"From: <sip:check@%s>;tag=%[4]s\r\nTo: <%[1]s>\r\nCall-ID: %[4]s\r\nCSeq: 1 OPTIONS\r\nContact: <sip:check@%[3]s>\r\n"+
		"Accept: application/sdp\r\nContent-Length: 0\r\n\r\n", uri, strings.ToUpper(transport), us, id, us)
	deadline, _ := ctx.Deadline()
	answer := make([]byte, 4<<10)
	for pause := sipPause; ; pause *= 2 {
		if _, err := conn.Write(request); err != nil {
			return "", err
		}
		until := deadline
		if again := time.Now().Add(pause); transport == "udp" && again.Before(deadline) {
			until = again
		}
		_ = conn.SetReadDeadline(until)
		n, err := conn.Read(answer)
		switch {
		case err == nil:
			line := firstLine(answer[:n])
			status, ok := strings.CutPrefix(line, "SIP/2.0 ")
			if !ok {
				return "", fmt.Errorf("the answer is not SIP: %q", line)
			}
			return status, nil
		case !isTimeout(err) || until == deadline:
			return "", err
		}
	}
}
