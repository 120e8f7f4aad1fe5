package check

import "testing"

func TestLostPackets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sequence []uint16
		lost     int
	}{
		"in order":   {[]uint16{1, 2, 3}, 0},
		"lost":       {[]uint16{1, 4, 5}, 2},
		"reordered":  {[]uint16{1, 2, 4, 3, 5}, 0},
		"duplicated": {[]uint16{1, 2, 2, 3}, 0},
		"wrapped":    {[]uint16{65534, 65535, 1}, 1},
	} {
		var in voiceStats
		for _, n := range test.sequence {
			in.addPacket(n, 0)
		}
		if in.lost != test.lost || in.packets != len(test.sequence) {
			t.Errorf("%s: %d packets of %d lost, want %d", name, in.lost, in.packets, test.lost)
		}
	}
}
