package rtpaudio

import "github.com/pion/rtcp"

const (
	// maxReported limits the number of packets that one report may cover: a minute of sound. A larger number means that
	// the report's sequence number belongs to another stream.
	maxReported = 3000
	// packetsPerReport is the number of packets between two loss reports of a [Receiver]: two seconds of sound.
	packetsPerReport = 100
)

// Reports evaluates a peer's reception reports for one stream of the gateway (RFC 3550, section 6.4.1). The zero value
// is ready for use.
type Reports struct {
	lastSequence, totalLost uint32 // values of the newest report
	hasReport               bool
}

// AddReport returns how many packets were sent since the previous report, and how many of them were lost. For the first
// report and after a jump both are 0, because the number is unknown.
func (r *Reports) AddReport(report rtcp.ReceptionReport) (lostPackets, sentPackets int) {
	sentPackets = int(int32(report.LastSequenceNumber - r.lastSequence))
	lostPackets = int(int32((report.TotalLost-r.totalLost)<<8) >> 8) // 24-bit signed: duplicates can make it negative
	if !r.hasReport || sentPackets <= 0 || sentPackets > maxReported {
		sentPackets = 0
	}
	r.lastSequence, r.totalLost, r.hasReport = report.LastSequenceNumber, report.TotalLost, true
	return max(0, min(lostPackets, sentPackets)), sentPackets
}

// reportLossIfDue calls OnLoss with the losses since the previous call, once packetsPerReport packets were sent.
func (r *Receiver) reportLossIfDue() {
	of, lost := r.stats.Packets+r.stats.Lost-r.stats.Late-r.stats.Duplicate, r.stats.Lost
	if r.options.OnLoss == nil || of < r.reported.of+packetsPerReport {
		return
	}
	r.options.OnLoss(int(lost-r.reported.lost), int(of-r.reported.of))
	r.reported.lost, r.reported.of = lost, of
}
