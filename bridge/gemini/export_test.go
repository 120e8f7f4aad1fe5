package gemini

// TCPDialer is what connections are made with.
var TCPDialer = tcpDialer
