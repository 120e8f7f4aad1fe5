package network

import (
	"fmt"
	"io"
	"time"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/speech"
)

// write prints the table.
func write(w io.Writer, began time.Time, o Options, chosen []condition, calls []*call) error {
	var b harness.Table
	fmt.Fprintf(&b, "`%s` on %s, %v, seed %d: %s.\n\n", o.Command, began.Format(time.DateOnly), time.Since(began).Round(time.Second), o.Seed, harness.Machine())
	b.Header("between person and gateway, both ways", "speech that reaches the model", "its added delay", "voice that reaches the person", "its added delay", "heard again after")
	copies, made := 0, 0
	for i, c := range chosen {
		if calls[i] == nil {
			b.Row(c.name, "not measured", "–", "–", "–", "–")
			continue
		}
		if !c.plain {
			made++
			if calls[i].copies {
				copies++
			}
		}
		up, down := calls[i].results()
		again := "–"
		if c.blackout > 0 || c.moves {
			again = harness.Milliseconds(up.recovery) + " / " + harness.Milliseconds(down.recovery)
		}
		b.Row(c.name, up.text(), up.delays(), down.text(), down.delays(), again)
	}
	fmt.Fprintf(&b, `
- A Pion caller talks and hears through a network of its own that takes %v in each direction and does this to the packets of both,
  for %v after %v without faults. The model is one that keeps each sample it hears, and talks as well, a second at a time.
- Speech is a share of the voiced 20 ms blocks: one counts where half of the energy of its wave (correlation %.2f, below %d Hz) is
  found in what was heard. What a decoder makes up for a lost packet counts where it comes as near as that.
- Delay is compared with that before: median / 95th percentile of the blocks heard / 10th percentile
  from %v after the end on, which is what has stayed. That of the
  voice is as a player has it that does not speed up within a word.
- "Again" is from the end of the silence, or from the change of address, to the first speech: model / person.
- The caller offers what Chromium does, and NACK: Opus with FEC at 32 kb/s, with a copy of the packet before (RED, agreed on in
  %d of %d calls). "Plain Opus" offers neither copies nor NACK. It repairs what it hears with the gateway's own receiver.
`, linkDelay, spanOf(calls).bad, spanOf(calls).clean, speech.Likeness, speech.Cutoff, backTime, copies, made)
	_, err := io.WriteString(w, b.String())
	return err
}

// spanOf is how long the parts of the calls took.
func spanOf(calls []*call) span {
	for _, c := range calls {
		if c != nil {
			return c.span
		}
	}
	return fullSpan
}

func (m measured) text() string { return fmt.Sprintf("%.1f %%", 100*m.share) }

func (m measured) delays() string {
	return fmt.Sprintf("%s / %s / %s", harness.Milliseconds(m.added), harness.Milliseconds(m.tail), harness.Milliseconds(m.back))
}
