package rtpaudio

import "github.com/pion/rtcp"

const (
	// mostReported is how many packets one report may cover: a minute's, where reports come every few seconds. More is the
	// sequence number of something else.
	mostReported = 3000
	// lossEvery is after how many packets a [Receiver] says how many were lost: two seconds of sound.
	lossEvery = 100
)

// Reports reads what a peer says of one of our streams, report by report (RFC 3550, section 6.4.1). The zero value has read none.
type Reports struct {
	extended, missed uint32 // as the newest report has them
	begun            bool
}

// Next returns how many packets were to come since the report before, and how many of them were lost. of is 0 where that cannot be
// said: at the first report, one that is repeated, or one of other numbers than ours.
func (r *Reports) Next(report rtcp.ReceptionReport) (lost, of int) {
	of = int(int32(report.LastSequenceNumber - r.extended))
	lost = int(int32((report.TotalLost-r.missed)<<8) >> 8) // 24 bits and a sign: packets that come twice take it below zero
	if !r.begun || of <= 0 || of > mostReported {
		of = 0
	}
	r.extended, r.missed, r.begun = report.LastSequenceNumber, report.TotalLost, true
	return max(0, min(lost, of)), of
}

// reportLoss tells of the packets since it last did, once there are enough of them.
func (r *Receiver) reportLoss() {
	of, lost := r.stats.Packets+r.stats.Lost-r.stats.Late-r.stats.Duplicate, r.stats.Lost
	if r.options.Loss == nil || of < r.told.of+lossEvery {
		return
	}
	r.options.Loss(int(lost-r.told.lost), int(of-r.told.of))
	r.told.lost, r.told.of = lost, of
}
