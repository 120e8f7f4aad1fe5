package rtc

import "time"

// Quality measures one audio stream between a client and the gateway.
type Quality struct {
	Up          bool   // a client's microphone, measured here; otherwise the model's voice, from the client's RTCP reports
	Packets     uint64 // packets expected; includes lost ones
	LostPackets uint64 // packets that never arrived, or too late for playout
	LatePackets uint64 // packets that arrived after they were given up; included in LostPackets; only with Up
	Jitter      time.Duration
	// Concealed is the duration of audio that replaced lost packets. It is set only if Up is true.
	Concealed time.Duration
}

// AddReport adds what a peer's RTCP report says about the packets that we have sent since its previous report. jitter
// is in units of the codec's clock.
func (q *Quality) AddReport(lostPackets, totalPackets int, jitter uint32, clockRate int) {
	q.Packets += uint64(totalPackets)
	q.LostPackets += uint64(lostPackets)
	q.Jitter = time.Duration(jitter) * time.Second / time.Duration(clockRate)
}

// OnQuality sets f to be called for each microphone and each voice that ends. Call it before the first NewPeer; f must
// not block.
func (a *API) OnQuality(f func(Quality)) { a.observe = f }

// ReportQuality passes the quality of a stream that has ended to the function of [API.OnQuality]. A nil API ignores it.
func (a *API) ReportQuality(q Quality) {
	if a != nil && a.observe != nil && q.Packets > 0 {
		a.observe(q)
	}
}
