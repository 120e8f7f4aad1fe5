package rtc

import "time"

// Quality is how well the sound came through between a client and us.
type Quality struct {
	Up      bool   // a client's microphone, as received here; else the model's voice, as the client reports it by RTCP
	Packets uint64 // that came, or were to come
	Lost    uint64 // and never came, or not in time to be heard
	Late    uint64 // came when they had been given up; they are among the lost; only Up
	Jitter  time.Duration
	// Concealed is how much sound was made up in the place of lost packets; only Up.
	Concealed time.Duration
}

// Reported adds what a peer's newest report says of our packets: so many lost of so many since the one before, and their jitter in
// units of the codec's clock.
func (q *Quality) Reported(lost, of int, jitter uint32, clockRate int) {
	q.Packets += uint64(of)
	q.Lost += uint64(lost)
	q.Jitter = time.Duration(jitter) * time.Second / time.Duration(clockRate)
}

// Observe has f called for each microphone and each voice that ends. It must be called before the first NewPeer; f must not block.
func (a *API) Observe(f func(Quality)) { a.observe = f }

// Heard reports a stream that has ended, of a peer or of whoever else carries sound by RTP. A nil API reports nothing.
func (a *API) Heard(q Quality) {
	if a != nil && a.observe != nil && q.Packets > 0 {
		a.observe(q)
	}
}
