package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// oggWriter writes the pages of one Opus stream (RFC 7845) to an Ogg file (RFC 3533).
type oggWriter struct {
	w        io.Writer
	serial   uint32
	sequence uint32
	granule  int64 // granule position of the last packet on the open page
	lacing   []byte
	body     []byte
	page     []byte
}

const (
	maxLacing = 255 // segments of a page

	firstPageFlag = 2 // header flags
	lastPageFlag  = 4
)

// writeHeaders writes the header packets, each on its own page.
func (o *oggWriter) writeHeaders(startedAt time.Time) error {
	head := append([]byte("OpusHead"), 1, 2) // version, channels
	head = binary.LittleEndian.AppendUint16(head, preSkip)
	head = binary.LittleEndian.AppendUint32(head, rate) // rate of the original sound, for information only
	head = append(head, 0, 0, 0)                        // gain, and mapping family 0: mono or stereo
	if err := o.addPacket(head, 0); err != nil {
		return err
	}
	if err := o.flushPage(false); err != nil {
		return err
	}
	tags := []byte("OpusTags")
	text := func(s string) {
		tags = binary.LittleEndian.AppendUint32(tags, uint32(len(s)))
		tags = append(tags, s...)
	}
	text("Voxgate")
	tags = binary.LittleEndian.AppendUint32(tags, 2)
	text("DATE=" + startedAt.UTC().Format(time.RFC3339Nano))
	text("DESCRIPTION=left: the person, right: the model")
	if err := o.addPacket(tags, 0); err != nil {
		return err
	}
	return o.flushPage(false)
}

// addPacket adds a packet to the open page. granule is the number of samples at 48 kHz up to the end of the packet.
func (o *oggWriter) addPacket(packet []byte, granule int64) error {
	if len(o.lacing)+len(packet)/255+1 > maxLacing {
		if err := o.flushPage(false); err != nil {
			return err
		}
	}
	for n := len(packet); ; n -= 255 {
		o.lacing = append(o.lacing, byte(min(n, 255)))
		if n < 255 {
			break
		}
	}
	o.body = append(o.body, packet...)
	o.granule = granule
	return nil
}

// flushPage writes the open page. The last page of a stream may be empty.
func (o *oggWriter) flushPage(isLast bool) error {
	if len(o.lacing) == 0 && !isLast {
		return nil
	}
	var flags byte
	if o.sequence == 0 {
		flags |= firstPageFlag
	}
	if isLast {
		flags |= lastPageFlag
	}
	b := append(o.page[:0], "OggS\x00"...)
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.granule))
	b = binary.LittleEndian.AppendUint32(b, o.serial)
	b = binary.LittleEndian.AppendUint32(b, o.sequence)
	sum := len(b)
	b = append(b, 0, 0, 0, 0, byte(len(o.lacing)))
	b = append(b, o.lacing...)
	b = append(b, o.body...)
	binary.LittleEndian.PutUint32(b[sum:], checksum(b))
	o.page, o.lacing, o.body = b, o.lacing[:0], o.body[:0]
	o.sequence++
	if _, err := o.w.Write(b); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// checksum returns the CRC of a page (RFC 3533, section 6): polynomial 0x04c11db7, not reflected. hash/crc32 has no such variant.
func checksum(b []byte) (sum uint32) {
	for _, x := range b {
		sum = sum<<8 ^ crcTable[byte(sum>>24)^x]
	}
	return sum
}

var crcTable = func() (table [256]uint32) {
	for i := range table {
		r := uint32(i) << 24
		for range 8 {
			if r&(1<<31) != 0 {
				r = r<<1 ^ 0x04c11db7
			} else {
				r <<= 1
			}
		}
		table[i] = r
	}
	return table
}()
