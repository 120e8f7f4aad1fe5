package gemini

// TCPDialer is the dialer of all connections.
var TCPDialer = tcpDialer
