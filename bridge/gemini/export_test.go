package gemini

// Decode is the decoder of Recv, without a connection.
func Decode(data []byte) (*ServerMessage, error) { return new(decoder).decode(data) }
