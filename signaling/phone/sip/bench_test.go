package sip_test

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"voxgate/media"
)

// BenchmarkBridge measures the cost of a bridged call, with continuous packets in both directions, one per 20 ms as in real calls. The
// phones are in this process and count too. The variant "alone" measures only them: they send to each other without a gateway.
func BenchmarkBridge(b *testing.B) {
	const calls = 96 // enough that a processor hardly sleeps between packets
	for _, test := range []struct{ name, caller, colleague string }{
		{"alone", "", ""},
		{"same-codec", "0", "0"},
		{"PCMU-PCMA", "0", "8"},
	} {
		b.Run(test.name, func(b *testing.B) {
			var ends [2 * calls]*handset
			var beginning errgroup.Group
			beginning.SetLimit(8)
			for i := 0; i < len(ends); i += 2 {
				beginning.Go(func() error {
					if test.name != "alone" {
						h := beginTransfer(b, nil, test.caller, test.colleague).acceptTransfer()
						ends[i], ends[i+1] = h.caller, h.colleague
						return nil
					}
					caller, colleague := &handset{t: b}, &handset{t: b}
					caller.openAudio("0")
					colleague.openAudio("0")
					caller.gateway, colleague.gateway = colleague.audio.LocalAddr(), caller.audio.LocalAddr()
					ends[i], ends[i+1] = caller, colleague
					return nil
				})
			}
			_ = beginning.Wait() // a call that cannot begin fails the benchmark itself
			if b.Failed() {
				b.FailNow()
			}
			var heard atomic.Int64
			var listening sync.WaitGroup
			for i, end := range ends {
				number := uint8(0)
				if test.colleague == "8" && i%2 == 1 {
					number = 8
				}
				frame := make([]byte, media.Samples(media.FrameDuration, 8000))
				defer end.sendPackets(number, 8000, func(int) []byte { return frame })()
				end.audio.SetReadDeadline(time.Time{})
				listening.Go(func() {
					for buf := make([]byte, 1500); ; heard.Add(1) {
						if _, _, err := end.audio.ReadFrom(buf); err != nil {
							return
						}
					}
				})
			}
			defer listening.Wait()
			before, began := heard.Load(), time.Now()
			spent, tick := cpuTime(b), time.NewTicker(media.FrameDuration)
			defer tick.Stop()
			for b.Loop() {
				<-tick.C
			}
			spent, took := cpuTime(b)-spent, time.Since(began)
			if got, sent := heard.Load()-before, int64(len(ends))*int64(took/media.FrameDuration); got < sent*9/10 {
				b.Errorf("%d packets of %d were heard", got, sent)
			}
			b.ReportMetric(100*spent.Seconds()/took.Seconds()/calls, "%core/call")
			for _, end := range ends {
				end.audio.SetReadDeadline(time.Now())
			}
		})
	}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
