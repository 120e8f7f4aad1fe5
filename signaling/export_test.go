package signaling

// BodyTimeout limits how long a request's body may take.
const BodyTimeout = bodyTimeout
