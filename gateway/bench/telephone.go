package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/mediatest"
)

const (
	phones     = 300 // at once
	phonesRate = 40  // that begin in a second
	// phonesTalk is how long each talks: all are there for a while, between the last one's begin and the first one's end.
	phonesTalk = 35 * time.Second
	phonesRing = phones / phonesRate * time.Second
)

// phoneScenario is what each of sipp's telephones does: it calls, sends a recording in PCMU, and hangs up.
const phoneScenario = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="telephone">
<send retrans="500" start_rtd="1"><![CDATA[
INVITE sip:500@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
From: <sip:[call_number]@[local_ip]>;tag=[call_number]
To: <sip:500@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:[call_number]@[local_ip]:[local_port]>
Max-Forwards: 70
Content-Type: application/sdp
Content-Length: [len]

v=0
o=- 1 1 IN IP4 [local_ip]
s=-
c=IN IP4 [media_ip]
t=0 0
m=audio [rtpstream_audio_port] RTP/AVP 0
a=rtpmap:0 PCMU/8000
]]></send>
<recv response="100" optional="true"/>
<recv response="180" optional="true"/>
<recv response="200" rtd="1" rrs="true"/>
<send><![CDATA[
ACK sip:500@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
From: <sip:[call_number]@[local_ip]>;tag=[call_number]
To: <sip:500@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>
<nop><action><exec rtp_stream="SOUND,-1,0"/></action></nop>
<pause milliseconds="TALK"/>
<send retrans="500"><![CDATA[
BYE sip:500@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
From: <sip:[call_number]@[local_ip]>;tag=[call_number]
To: <sip:500@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 2 BYE
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv response="200"/>
</scenario>
`

// measureTelephones has sipp call a gateway, with the emulator beside it.
func measureTelephones(ctx context.Context, o options, out io.Writer) error {
	began := time.Now()
	folder, err := os.MkdirTemp("", "voxgate-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	model, err := start(ctx, nil, o.gateway, "emulate", "-addr", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer model.stop()
	gateway, at, err := o.startPhoneGateway(ctx, model.url, folder)
	if err != nil {
		return err
	}
	defer gateway.stop()
	before, err := gateway.resident()
	if err != nil {
		return err
	}
	progress("%d telephones, %d in a second", phones, phonesRate)
	ended := make(chan error, 1)
	go func() { ended <- runPhones(ctx, folder, at) }()
	seen, err := gateway.observePhones(ctx)
	if err = errors.Join(err, <-ended); err != nil {
		return fmt.Errorf("%w\n%s", err, gateway.log())
	}
	took, err := setUpTimes(folder)
	if err != nil {
		return err
	}
	t := newTable("what", "measured")
	t.row(fmt.Sprintf("telephones at once, PCMU, %d begun in a second", phonesRate), fmt.Sprintf("%d of %d, none failed", len(took), phones))
	t.row("from INVITE to 200: p50 / p99", milliseconds(quantile(took, 0.5))+" / "+milliseconds(quantile(took, 0.99)))
	t.row("CPU of a call", fmt.Sprintf("%.2f %% of a core", 100*seen.cores/phones))
	t.row("memory of a call", megabytes((seen.memory-before)/phones))
	t.row("the machine, with sipp and the emulator, idle", percent(seen.idle))
	return t.write(out, began)
}

// startPhoneGateway starts a gateway with a telephone line.
func (o options) startPhoneGateway(ctx context.Context, model, folder string) (gateway *process, at string, err error) {
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	at = free.LocalAddr().String()
	free.Close()
	config, err := json.Marshal(map[string]any{
		"listen": []any{map[string]any{"transport": "udp", "address": at}},
		"rtp":    map[string]any{"address": "127.0.0.1"},
		"calls":  phones,
		"trunks": []any{map[string]any{"name": "bench", "from": []string{"127.0.0.1"}, "calls": phones, "callsPerSecond": 2 * phonesRate}},
		"agents": []any{map[string]any{"to": []string{"*"}}},
	})
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(folder, "sip.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, "", err
	}
	gateway, err = start(ctx, []string{
		"VOXGATE_ADDR=127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL=" + model, "VOXGATE_SIP=" + file,
		"VOXGATE_LIMITS=sessions=0,new-per-second=0,new-per-second-per-key=0",
	}, o.gateway, "serve", "-stall", "1h")
	return gateway, at, err
}

// runPhones returns when all have talked.
func runPhones(ctx context.Context, folder, at string) error {
	const rate = 8000
	pcm := append(mediatest.Tone(time.Second, rate, 440, 8000), make([]int16, media.Samples(7*time.Second, rate))...)
	sound := filepath.Join(folder, "sound.ul")
	if err := os.WriteFile(sound, g711.MuLaw.AppendBytes(nil, pcm), 0o600); err != nil {
		return err
	}
	scenario := strings.NewReplacer("SOUND", sound, "TALK", fmt.Sprint(phonesTalk.Milliseconds())).Replace(phoneScenario)
	file := filepath.Join(folder, "phone.xml")
	if err := os.WriteFile(file, []byte(scenario), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sipp", "-sf", file, "-m", fmt.Sprint(phones), "-l", fmt.Sprint(phones), "-r", fmt.Sprint(phonesRate),
		"-i", "127.0.0.1", "-trace_rtt", "-rtt_freq", "1", "-trace_err", "-nostdin", at)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "TERM=dumb")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sipp: %w\n%s", err, said[max(0, len(said)-2000):])
	}
	return nil
}

// observePhones observes a gateway while all of its telephones talk.
func (p *process) observePhones(ctx context.Context) (w observed, err error) {
	const margin = 2 * time.Second
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	wait(phonesRing + 2*margin)
	first, err := p.usage()
	if err != nil {
		return w, err
	}
	wait(phonesTalk - phonesRing - 4*margin)
	last, err := p.usage()
	if err != nil {
		return w, err
	}
	w.cores = (last.cpu - first.cpu).Seconds() / last.at.Sub(first.at).Seconds()
	w.idle = float64(last.idle-first.idle) / float64(last.all-first.all)
	w.memory, err = p.resident()
	return w, err
}

// setUpTimes reads what sipp has written: a line for each answer, whose second field is in ms.
func setUpTimes(folder string) (took []time.Duration, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_rtt.csv"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("sipp has written %q, %w", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := csv.NewReader(f)
	lines.Comma, lines.FieldsPerRecord = ';', -1
	all, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	for _, line := range all[1:] {
		ms, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Duration(ms*float64(time.Millisecond)))
	}
	return took, nil
}
