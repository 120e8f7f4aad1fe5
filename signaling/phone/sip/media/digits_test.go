package media

import (
	"slices"
	"testing"

	"voxgate/media/rtpaudio"
)

// A digit counts once, even if its packets are duplicated, lost, late or have odd timestamps. Two digits count twice.
func TestDigitReader(t *testing.T) {
	type packet struct {
		sequence  uint16
		timestamp uint32
		code      byte
		duration  uint16
		end       bool
	}
	// key returns the packets of a normal key: four, and three with the end bit.
	key := func(code byte, sequence uint16, timestamp uint32) (list []packet) {
		for i := range uint16(7) {
			list = append(list, packet{sequence + i, timestamp, code, min(i+1, 5) * 160, i >= 4})
		}
		return list
	}
	// timed sets the timestamp of each packet.
	timed := func(list []packet, at func(i int, p packet) uint32) []packet {
		for i := range list {
			list[i].timestamp = at(i, list[i])
		}
		return list
	}
	grows := func(i int, p packet) uint32 { return p.timestamp + uint32(160*i) }
	join := func(lists ...[]packet) []packet { return slices.Concat(lists...) }
	for name, c := range map[string]struct {
		packets []packet
		want    string
	}{
		"one":                               {key(1, 10, 100), "1"},
		"twice the same":                    {join(key(1, 10, 100), key(1, 20, 1400)), "11"},
		"two":                               {join(key(1, 10, 100), key(11, 20, 1400)), "1#"},
		"only ends":                         {join(key(1, 10, 100)[5:], key(1, 20, 1400)[6:]), "11"},
		"only the first packets":            {join(key(1, 10, 100)[:1], key(1, 20, 1400)[:2]), "11"},
		"ends lost":                         {join(key(1, 10, 100)[:3], key(1, 20, 1400)[1:3]), "11"},
		"once more, and late":               {join(key(1, 10, 100), key(2, 20, 1400), key(1, 10, 100)), "12"},
		"turned around":                     {join(key(1, 10, 100)[4:], key(1, 10, 100)[:4]), "1"},
		"over the end of sequence and time": {join(key(1, 65532, 0xffffff00), key(1, 4, 2000)), "11"},
		"timestamps that grow":              {timed(key(5, 10, 100), grows), "5"},
		"twice, timestamps that grow":       {join(timed(key(5, 10, 100), grows), timed(key(5, 20, 1700), grows)), "55"},
		"timestamps that grow, ends lost":   {join(timed(key(5, 10, 100), grows)[:4], timed(key(5, 20, 1700), grows)), "55"},
		"ends with new timestamps":          {timed(key(1, 10, 100), func(i int, p packet) uint32 { return 100 + 160*uint32(max(0, i-4)) }), "1"},
		"an end with another timestamp":     {timed(key(1, 10, 100), func(i int, p packet) uint32 { return 100 + uint32(i/4*640) }), "1"},
		"time jumps back":                   {join(key(1, 10, 900000), key(2, 20, 100), key(3, 30, 1400)), "123"},
		"time jumps back, the same":         {join(key(1, 10, 900000), key(1, 20, 100), key(1, 30, 1400)), "111"},
		"time and sequence jump back":       {join(key(1, 9000, 900000), key(2, 1000, 100), key(3, 1010, 1400)), "123"},
		"three with one timestamp":          {join(key(1, 10, 100), key(2, 20, 100), key(3, 30, 100)), "123"},
		"the same three with one timestamp": {join(key(1, 10, 100), key(1, 20, 100), key(1, 30, 100)), "111"},
		"a long one in parts": {[]packet{
			{10, 100, 1, 65000, false}, {11, 100, 1, 65535, false}, {12, 65635, 1, 160, false}, {13, 65635, 1, 320, true},
		}, "1"},
		"durations that say nothing": {
			[]packet{{10, 100, 1, 0, false}, {11, 100, 1, 0, false}, {12, 100, 1, 0, true}, {13, 100, 1, 0, true}},
			"1",
		},
		"no digits": {[]packet{{10, 100, 16, 160, false}, {11, 500, 200, 160, true}}, ""},
	} {
		var r digitReader
		got := ""
		for _, p := range c.packets {
			payload := []byte{p.code, 10, byte(p.duration >> 8), byte(p.duration)}
			if p.end {
				payload[1] |= 0x80
			}
			r.detectDigit(rtpaudio.Event{SSRC: 7, Sequence: p.sequence, Timestamp: p.timestamp, Payload: payload},
				func(digit byte) { got += string(digit) })
		}
		if got != c.want {
			t.Errorf("%s: read %q, not %q", name, got, c.want)
		}
	}
	var r digitReader
	read := ""
	for _, ssrc := range []uint32{7, 8, 8} { // another stream has its own timestamps and sequence
		e := rtpaudio.Event{SSRC: ssrc, Sequence: 5, Timestamp: 50, Payload: []byte{2, 0x8a, 0, 0}}
		r.detectDigit(e, func(digit byte) { read += string(digit) })
	}
	r.detectDigit(rtpaudio.Event{SSRC: 8, Sequence: 6, Payload: []byte{3, 0x8a}}, func(digit byte) { read += string(digit) })
	if read != "22" {
		t.Errorf("read %q of two streams", read)
	}
	for body, want := range map[string]byte{
		"Signal=5\r\nDuration=160\r\n": '5',
		"Signal= *":                    '*',
		"Signal=\"5\"":                 '5',
		"signal=11\n":                  '#',
		"Signal=b":                     'B',
		"Signal=":                      0,
		"":                             0,
		"Signal=17":                    0,
	} {
		if got, _ := ParseInfoDigit("application/dtmf-relay; x=y", body); got != want {
			t.Errorf("%q is %q", body, got)
		}
	}
}
