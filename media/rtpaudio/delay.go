package rtpaudio

import (
	"time"

	"voxgate/media"
)

const (
	// delayWindow is over how long the least delay of a packet is taken for that of an idle path, as NetEQ does
	// (relative_arrival_delay_tracker.cc, kDelayHistoryMs). A clock that is 200 ppm off has drifted by 1 ms in two of them.
	delayWindow = 2 * time.Second
	// leastPackets must be in a window before the one before it is forgotten: after a pause without packets one late packet
	// does not make all that follow it early.
	leastPackets = 25
	// delayJump is what no queue on a path does: the sender was muted and its timestamps stood still, or they have jumped.
	delayJump = 500 * time.Millisecond
	// latenessStep and latenessSteps are the resolution of the histogram of lateness: what is beyond it, 240 ms, is not waited
	// for anyway.
	latenessStep  = 10 * time.Millisecond
	latenessSteps = 24
	// latenessShare of the packets are to come in time. NetEQ's 95 % is for an ear that wants it soon; to a model lateness
	// is cheap, and silence within a word is not.
	latenessShare = 0.97
	// latenessMemory is the weight that a packet keeps from one packet to the next, that of NetEQ's delay_manager.cc: a
	// second of jitter is forgotten, below 3 %, four seconds after it.
	latenessMemory = 0.983
)

// delayMeter measures how much later packets come than they could. It knows the sender's clock by the timestamps of the
// packets only, and ours by their arrival, so it takes the packet that was least delayed lately for the one that was not
// delayed at all. Since that forgets, it follows a clock that runs too fast or too slow.
type delayMeter struct {
	clock  int // rate of the timestamps, in Hz
	known  bool
	epoch  time.Time // when the first packet came
	ts     uint32    // of the newest packet
	sent   int64     // that of ts since the first packet, in units of the RTP clock
	window time.Time // when the present window began
	count  int       // packets in it
	least  [2]time.Duration
	last   time.Time // when the last packet came

	delay   time.Duration // of the newest packet
	jitter  jitter
	weights [latenessSteps]float32
	late    time.Duration // what 97 % of the packets did not exceed lately
}

// restart forgets the clocks, but not how late packets may be.
func (m *delayMeter) restart() { m.known = false }

// observe takes the timestamp of a packet and when it came. newest: in the order of the sequence it is after all others.
func (m *delayMeter) observe(ts uint32, at time.Time, newest bool) {
	if !m.known {
		*m = delayMeter{clock: m.clock, known: true, epoch: at, ts: ts, window: at, last: at, weights: m.weights, late: m.late, jitter: m.jitter}
		if m.late == 0 {
			m.weights[0] = 1 // or the second packet would be all that is known
		}
	}
	sent := m.sent + int64(int32(ts-m.ts))
	delay := at.Sub(m.epoch) - rtpDuration(sent, m.clock)
	if newest {
		if delay-m.base() > delayJump {
			m.restart()
			m.observe(ts, at, true)
			return
		}
		m.ts, m.sent = ts, sent
		m.jitter.add(delay - m.delay)
		m.delay = delay
	}
	if at.Sub(m.window) >= delayWindow && m.count >= leastPackets {
		m.window, m.count, m.least[1], m.least[0] = at, 0, m.least[0], delay
	}
	m.count++
	m.least[0] = min(m.least[0], delay)
	m.weigh(delay-m.base(), at)
}

// jitter adds up by how much the delays of two packets in a row differ: D in RFC 3550, section 6.4.1.
type jitter struct {
	sum   time.Duration
	count time.Duration
}

func (j *jitter) add(d time.Duration) {
	j.sum += d.Abs()
	j.count++
}

func (j *jitter) mean() time.Duration { return j.sum / max(j.count, 1) }

// base is the least delay in the last two to four seconds, in relation to the first packet.
func (m *delayMeter) base() time.Duration { return min(m.least[0], m.least[1]) }

// weigh puts a lateness into the histogram. Of packets that one delay has held up together, the first shows how long it was.
func (m *delayMeter) weigh(late time.Duration, at time.Time) {
	for i := range m.weights {
		m.weights[i] *= latenessMemory
	}
	if at.Sub(m.last) >= media.FrameDuration/8 {
		m.weights[max(0, min(latenessSteps-1, int(late/latenessStep)))] += 1 - latenessMemory
	}
	m.last = at
	var sum, share float32
	for _, w := range m.weights {
		sum += w
	}
	for i, w := range m.weights {
		if share += w; share >= sum*latenessShare {
			m.late = time.Duration(i+1) * latenessStep
			return
		}
	}
}

// ideal returns when a packet of timestamp ts would come or would have come on an idle path; never, if nothing is known.
func (m *delayMeter) ideal(ts uint32) time.Time {
	if !m.known {
		return time.Time{}
	}
	return m.epoch.Add(m.base() + rtpDuration(m.sent+int64(int32(ts-m.ts)), m.clock))
}

// rtpDuration returns how long n units of an RTP clock of rate Hz are, for any n of a life.
func rtpDuration(n int64, rate int) time.Duration {
	r := int64(rate)
	return time.Duration(n/r)*time.Second + time.Duration(n%r)*time.Second/time.Duration(r)
}
