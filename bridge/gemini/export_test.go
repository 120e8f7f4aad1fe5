package gemini

// Decode is the decoder of Recv, without a connection.
func Decode(data []byte) (*ServerMessage, error) { return new(decoder).decode(data) }

// TCPDialer is what connections are made with.
var TCPDialer = tcpDialer
