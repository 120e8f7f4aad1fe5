package rtpaudio

import (
	"time"

	"voxgate/media"
)

const (
	// delayWindow is the length of a measuring window. The minimum delay in a window counts as the delay of an idle
	// path, as in NetEQ (relative_arrival_delay_tracker.cc, kDelayHistoryMs). The window is so short
	// that the drift of the clocks does not matter: at 200 ppm it is 1 ms in two windows.
	delayWindow = 2 * time.Second
	// minPackets is the minimum number of packets in a window before the next window begins. Otherwise a single late packet
	// after a pause would set the minimum delay, and the next packet would look early.
	minPackets = 25
	// delayJump is longer than any delay that a queue in the network causes. A larger increase means that the sender
	// was muted and stopped its timestamps, or that the timestamps have jumped.
	delayJump = 500 * time.Millisecond
	// latenessStep is the resolution of the histogram of lateness. The histogram covers 240 ms, because the receiver
	// waits no longer.
	latenessStep  = 10 * time.Millisecond
	latenessSteps = 24
	// latenessShare is the share of packets that should arrive within the wait. NetEQ uses 95 %, because people need a
	// low delay. A model suffers more from silence within a word.
	latenessShare = 0.97
	// Each packet multiplies the weights of all earlier packets by latenessMemory, as in NetEQ's delay_manager.cc.
	// After four seconds, the weight of one second with jitter is below 3 %.
	latenessMemory = 0.983
)

// delayMeter measures how late packets arrive, from their timestamps. It assumes that the recent packet with the
// smallest delay was on time. It forgets old packets, so it adapts to a sender whose clock is fast or slow.
type delayMeter struct {
	clock       int // rate of the timestamps, in Hz
	isStarted   bool
	epoch       time.Time // arrival of the first packet
	ts          uint32    // timestamp of the newest packet
	elapsed     int64     // ts relative to the first packet, in units of the RTP clock
	windowStart time.Time // start of the current window
	count       int       // packets in the window
	minDelays   [2]time.Duration
	lastArrival time.Time // arrival of the last packet

	delay    time.Duration // delay of the newest packet
	jitter   jitter
	weights  [latenessSteps]float32
	lateness time.Duration // lateness that 97 % of recent packets did not exceed
}

// restart makes the next packet begin a new measurement. The lateness measured so far is kept.
func (m *delayMeter) restart() { m.isStarted = false }

// addArrival adds the timestamp and the arrival of a packet. isNewest means that the packet has the highest sequence
// number so far.
func (m *delayMeter) addArrival(ts uint32, at time.Time, isNewest bool) {
	if !m.isStarted {
		*m = delayMeter{
			clock: m.clock, isStarted: true, epoch: at, ts: ts, windowStart: at, lastArrival: at,
			weights: m.weights, lateness: m.lateness, jitter: m.jitter,
		}
		if m.lateness == 0 {
			m.weights[0] = 1 // so that lateness does not depend on the second packet alone
		}
	}
	sent := m.elapsed + int64(int32(ts-m.ts))
	delay := at.Sub(m.epoch) - rtpDuration(sent, m.clock)
	if isNewest {
		if delay-m.baseDelay() > delayJump {
			m.restart()
			m.addArrival(ts, at, true)
			return
		}
		m.ts, m.elapsed = ts, sent
		m.jitter.addDifference(delay - m.delay)
		m.delay = delay
	}
	if at.Sub(m.windowStart) >= delayWindow && m.count >= minPackets {
		m.windowStart, m.count, m.minDelays[1], m.minDelays[0] = at, 0, m.minDelays[0], delay
	}
	m.count++
	m.minDelays[0] = min(m.minDelays[0], delay)
	m.addLateness(delay-m.baseDelay(), at)
}

// jitter averages the difference between the delays of consecutive packets: D in RFC 3550, section 6.4.1.
type jitter struct {
	sum   time.Duration
	count time.Duration
}

func (j *jitter) addDifference(d time.Duration) {
	j.sum += d.Abs()
	j.count++
}

func (j *jitter) mean() time.Duration { return j.sum / max(j.count, 1) }

// baseDelay returns the minimum delay of the last two to four seconds, relative to the first packet.
func (m *delayMeter) baseDelay() time.Duration { return min(m.minDelays[0], m.minDelays[1]) }

// addLateness adds the lateness of a packet to the histogram. If several packets arrive at the same time, only the
// first counts, because it was held up longest.
func (m *delayMeter) addLateness(late time.Duration, at time.Time) {
	for i := range m.weights {
		m.weights[i] *= latenessMemory
	}
	if at.Sub(m.lastArrival) >= media.FrameDuration/8 {
		m.weights[max(0, min(latenessSteps-1, int(late/latenessStep)))] += 1 - latenessMemory
	}
	m.lastArrival = at
	var sum, share float32
	for _, w := range m.weights {
		sum += w
	}
	for i, w := range m.weights {
		if share += w; share >= sum*latenessShare {
			m.lateness = time.Duration(i+1) * latenessStep
			return
		}
	}
}

// idealArrival returns when a packet with timestamp ts would arrive on an idle path, or zero if that is unknown.
func (m *delayMeter) idealArrival(ts uint32) time.Time {
	if !m.isStarted {
		return time.Time{}
	}
	return m.epoch.Add(m.baseDelay() + rtpDuration(m.elapsed+int64(int32(ts-m.ts)), m.clock))
}

// rtpDuration returns the duration of n units of an RTP clock of rate Hz, without overflow.
func rtpDuration(n int64, rate int) time.Duration {
	r := int64(rate)
	return time.Duration(n/r)*time.Second + time.Duration(n%r)*time.Second/time.Duration(r)
}
