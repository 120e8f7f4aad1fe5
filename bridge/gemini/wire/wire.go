// Package wire is what is said on a Live connection, in JSON: the messages to the server and from it, how a connection is
// refused and how it ends, and what that means for the next dial. It opens nothing; package gemini does.
//
// The wire is described at https://ai.google.dev/api/live.
package wire

// OutputRate is the sample rate of the model's voice in Hz unless its mime type says otherwise.
// See https://ai.google.dev/gemini-api/docs/live-guide.
const OutputRate = 24000
