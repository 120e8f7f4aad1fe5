// Package protocol encodes and decodes the JSON messages of the client protocol (signaling/client/PROTOCOL.md). It parses a
// client's messages strictly, and converts them to commands of the conversation; it encodes the messages to the client,
// including the events of the conversation. It opens no connections and sends nothing; package client does.
package protocol

import (
	"encoding/json"
	"strconv"
	"time"

	"voxgate/bridge"
	"voxgate/tools"
)

// Types of the messages that clients send. PROTOCOL.md describes them.
const (
	TypeConnect       = "CONNECT_GEMINI"
	TypeMessage       = "SEND_MESSAGE"
	TypeRealtimeInput = "SEND_REALTIME_INPUT"
	TypeToolResponse  = "SEND_TOOL_RESPONSE"
	TypeUpdateConfig  = "UPDATE_CONFIG"
	TypeGetContext    = "GET_CONTEXT"
	TypeClearContext  = "CLEAR_CONTEXT"
	TypeInterrupt     = "INTERRUPT"
	TypeRecording     = "PAUSE_RECORDING"
	TypeDisconnect    = "DISCONNECT_GEMINI"
	TypeOffer         = "WEBRTC_OFFER"
	TypeCandidate     = "WEBRTC_ICE_CANDIDATE" // both directions
	TypePiece         = "PIECE"                // both directions
	TypePing          = "PING"
)

// commandParsers has the parser of each message type that becomes one [bridge.Command].
var commandParsers = map[string]func(m ClientMessage, replyTo any) (bridge.Command, error){
	TypeUpdateConfig: parseUpdateConfig,
	TypeGetContext: func(_ ClientMessage, replyTo any) (bridge.Command, error) {
		return bridge.GetContext{ReplyTo: replyTo}, nil
	},
	TypeClearContext: func(_ ClientMessage, replyTo any) (bridge.Command, error) {
		return bridge.ClearContext{ReplyTo: replyTo}, nil
	},
	TypeInterrupt: func(ClientMessage, any) (bridge.Command, error) { return bridge.Interrupt{}, nil },
	TypeRecording: parsePauseRecording,
}

// ParseCommand converts the message to a command of the conversation. It returns nil for messages that have parsers of
// their own. replyTo becomes the [bridge.Event.ReplyTo] of the answer.
func (m ClientMessage) ParseCommand(replyTo any) (bridge.Command, error) {
	parse := commandParsers[m.Type]
	if parse == nil {
		return nil, nil
	}
	return parse(m, replyTo)
}

// parseUpdateConfig parses a change of the configuration. It does not validate the LiveConfig.
func parseUpdateConfig(m ClientMessage, replyTo any) (bridge.Command, error) {
	var config json.RawMessage
	if err := m.DecodePayload(&config); err != nil {
		return nil, err
	}
	return bridge.UpdateConfig{Config: config, ReplyTo: replyTo}, nil
}

func parsePauseRecording(m ClientMessage, _ any) (bridge.Command, error) {
	var p struct {
		Paused *bool `json:"paused"`
	}
	if err := m.DecodePayload(&p); err != nil {
		return nil, err
	}
	if p.Paused == nil {
		return nil, BadField("payload.paused", "must be true or false")
	}
	return bridge.PauseRecording{On: *p.Paused}, nil
}

// Types of the messages that clients receive, in addition to TypeCandidate and TypePiece.
const (
	typeConnected        = "GEMINI_CONNECTED"
	typeDisconnected     = "GEMINI_DISCONNECTED"
	typeError            = "GEMINI_ERROR"
	typeContent          = "CONTENT_MESSAGE"
	typeToolCall         = "TOOL_CALL"
	typeToolCancellation = "TOOL_CALL_CANCELLATION"
	typeToolStatus       = "TOOL_STATUS"
	typeSetupComplete    = "SETUP_COMPLETE"
	typeInterrupted      = "INTERRUPTED"
	typeLatency          = "TURN_LATENCY"
	typeTurnComplete     = "TURN_COMPLETE"
	typeAudioChunk       = "AUDIO_CHUNK"
	typeAnswer           = "WEBRTC_ANSWER"
	typeLog              = "LOG_MESSAGE"
	typeSpeaking         = "ASSISTANT_SPEAKING"
	typeThinking         = "ASSISTANT_THINKING"
	typeUserSpeaking     = "USER_SPEAKING"
	typeState            = "SESSION_STATE"
	typeStep             = "AGENT_STEP"
	typeMove             = "MOVE"
	typeContext          = "CONTEXT"
	typeGrounding        = "groundingMetadata"
	typePong             = "PONG"
)

// version is sent in GEMINI_CONNECTED. It changes when clients for the previous version would no longer work.
const version = 1

// ServerMessage is a message of the gateway, without its sequence number.
type ServerMessage struct {
	kind    string
	payload []byte    // JSON, or empty
	event   uint64    // number of the reported event of the conversation, or 0 if the message reports no event
	time    time.Time // time of the event; zero if the message reports no event
}

// newMessage returns a message with a payload.
func newMessage(kind string, payload any) ServerMessage {
	return ServerMessage{kind: kind, payload: tools.EncodeOrEmpty(payload)}
}

// Encode returns the message as JSON. seq is the number of an event, and 0 for other messages.
func (m ServerMessage) Encode(seq uint64) []byte {
	b := make([]byte, 0, len(m.payload)+len(m.kind)+96)
	b = append(b, `{"type":"`...)
	b = append(b, m.kind...)
	b = append(b, '"')
	if len(m.payload) > 0 {
		b = append(b, `,"payload":`...)
		b = append(b, m.payload...)
	}
	if seq > 0 {
		b = append(b, `,"seq":`...)
		b = strconv.AppendUint(b, seq, 10)
	}
	if m.event > 0 {
		b = append(b, `,"event":`...)
		b = strconv.AppendUint(b, m.event, 10)
	}
	if !m.time.IsZero() {
		b = append(b, `,"time":`...)
		b = strconv.AppendInt(b, m.time.UnixMilli(), 10)
	}
	return append(b, '}')
}
