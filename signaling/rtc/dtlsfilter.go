package rtc

import (
	"encoding/binary"
	"net"
)

// filteredUDPConn is a UDP socket that drops forged DTLS datagrams, as RFC 6347 section 4.1.2.7 requires. Anyone who
// knows the addresses of client and gateway can forge datagrams, and certain plaintext records would make pion/dtls end
// the connection.
type filteredUDPConn struct{ *net.UDPConn }

func (f filteredUDPConn) ReadFrom(p []byte) (n int, from net.Addr, err error) {
	for {
		n, from, err = f.UDPConn.ReadFrom(p)
		if err != nil || isHarmlessDTLS(p[:n]) {
			return n, from, err
		}
	}
}

// Types of DTLS records in plaintext (RFC 5246 section 6.2.1), and the length of the header (RFC 6347 section 4.1).
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22
	recordHeader           = 13
)

// isHarmlessDTLS reports whether a datagram cannot end a DTLS connection. It checks only plaintext DTLS records.
// Datagrams of other protocols (RFC 7983) are always harmless.
func isHarmlessDTLS(datagram []byte) bool {
	if len(datagram) == 0 || datagram[0] < 20 || datagram[0] > 63 {
		return true
	}
	for rest := datagram; len(rest) > 0; {
		if len(rest) <= recordHeader {
			return false
		}
		kind, epoch, length := rest[0], binary.BigEndian.Uint16(rest[3:]), int(binary.BigEndian.Uint16(rest[11:]))
		if rest = rest[recordHeader:]; length > len(rest) {
			return false
		}
		body := rest[:length]
		rest = rest[length:]
		if epoch > 0 {
			continue // encrypted: pion discards records that are not from the other side
		}
		switch kind {
		case recordHandshake, recordAlert: // pion discards these once the connection is established
		case recordChangeCipherSpec:
			if string(body) != "\x01" {
				return false
			}
		default:
			return false
		}
	}
	return true
}
