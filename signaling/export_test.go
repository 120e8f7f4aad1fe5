package signaling

// BodyTimeout is how long a request's body may take.
const BodyTimeout = bodyTimeout
