package uplink

import (
	"testing"

	"voxgate/bridge/turns"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// BenchmarkCall gives an uplink half a minute of spoken clips with pauses. The person speaks over answers half of the time,
// which is the most expensive case, or never. With a frame every 20 ms, 200,000 ns per frame are 1 % of a core.
func BenchmarkCall(b *testing.B) {
	pcm, err := media.Resample(mediatest.Conversation(), 48000, 16000)
	if err != nil {
		b.Fatal(err)
	}
	const frame = 320
	for _, row := range []struct {
		name        string
		by          turns.By
		overlapping bool
	}{
		{"by model", turns.ByModel, false}, {"by gateway", turns.ByGateway, false}, {"by gateway, over answers", turns.ByGateway, true},
	} {
		b.Run(row.name, func(b *testing.B) {
			isSounding := false
			u := New(func() (bool, float64) { return isSounding, -20 })
			u.Configure(Config{IsManual: row.by == turns.ByGateway, Turns: turns.Settings{By: row.by}})
			at, begun := 0, mediatest.CPUTime(b)
			for b.Loop() {
				isSounding = row.overlapping && at/(5*16000)%2 == 1
				u.QueueAudio(pcm[at:at+frame], 16000)
				for _, a := range u.TakeTurnActions() {
					if a.Kind == turns.AskJudge {
						u.RecordVerdict(a.Pause, 0.5, true)
					}
				}
				u.paced = false // the benchmark is faster than real time
				for ok := true; ok; {
					_, _, ok = u.Next(0)
				}
				if at += frame; at+frame > len(pcm) {
					at = 0
				}
				u.MarkAnswered()
			}
			b.ReportMetric(float64((mediatest.CPUTime(b)-begun).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}
