package rtpaudio

import "github.com/pion/rtcp"

const (
	// maxReported is how many packets one report may cover: a minute's, although reports come every few seconds. More means that the
	// sequence number belongs to another stream.
	mostReported = 3000
	// lossInterval is after how many packets a [Receiver] reports losses: two seconds of sound.
	lossEvery = 100
)

// Reports evaluates a peer's reception reports for one of our streams (RFC 3550, section 6.4.1). The zero value is ready for use.
type Reports struct {
	extended, missed uint32 // from the newest report
	begun            bool
}

// Next returns how many packets were sent since the previous report, and how many of them were lost. of is 0 if that is unknown:
// for the first report, a repeated one, or one with foreign sequence numbers.
func (r *Reports) Next(report rtcp.ReceptionReport) (lost, of int) {
	of = int(int32(report.LastSequenceNumber - r.extended))
	lost = int(int32((report.TotalLost-r.missed)<<8) >> 8) // 24-bit signed: duplicates can make it negative
	if !r.begun || of <= 0 || of > mostReported {
		of = 0
	}
	r.extended, r.missed, r.begun = report.LastSequenceNumber, report.TotalLost, true
	return max(0, min(lost, of)), of
}

// reportLoss reports the losses since its last report, once there are enough packets.
func (r *Receiver) reportLoss() {
	of, lost := r.stats.Packets+r.stats.Lost-r.stats.Late-r.stats.Duplicate, r.stats.Lost
	if r.options.Loss == nil || of < r.told.of+lossEvery {
		return
	}
	r.options.Loss(int(lost-r.told.lost), int(of-r.told.of))
	r.told.lost, r.told.of = lost, of
}
