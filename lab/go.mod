module voxgate/lab

go 1.26.0

replace voxgate => ../

require (
	github.com/gorilla/websocket v1.5.3
	github.com/jfreymuth/oggvorbis v1.0.5
	github.com/pion/rtcp v1.2.17
	github.com/pion/rtp v1.10.5
	github.com/pion/webrtc/v4 v4.2.20
	golang.org/x/sync v0.24.0
	google.golang.org/protobuf v1.36.12
	voxgate v0.0.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/gotranspile/g722 v0.0.0-20240123003956-384a1bb16a19 // indirect
	github.com/jfreymuth/vorbis v1.0.2 // indirect
	github.com/pion/datachannel v1.6.2 // indirect
	github.com/pion/dtls/v3 v3.1.15 // indirect
	github.com/pion/ice/v4 v4.4.2 // indirect
	github.com/pion/interceptor v0.1.49 // indirect
	github.com/pion/logging v0.2.4 // indirect
	github.com/pion/mdns/v2 v2.2.0 // indirect
	github.com/pion/opus v0.1.0 // indirect
	github.com/pion/randutil v0.1.0 // indirect
	github.com/pion/sctp v1.11.3 // indirect
	github.com/pion/sdp/v3 v3.0.19 // indirect
	github.com/pion/srtp/v3 v3.0.13 // indirect
	github.com/pion/stun/v4 v4.0.0 // indirect
	github.com/pion/transport/v4 v4.1.0 // indirect
	github.com/pion/transport/v5 v5.0.1 // indirect
	github.com/pion/turn/v5 v5.1.0 // indirect
	github.com/wlynxg/anet v0.0.5 // indirect
	github.com/yalue/onnxruntime_go v1.27.0 // indirect
	github.com/zaf/resample v1.5.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
