package main

import (
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
)

const (
	phones     = 300 // concurrent calls
	phonesRate = 40  // new calls per second
	// phonesTalk is the duration of each call. Between the start of the last call and the end of the first call, all
	// calls are active.
	phonesTalk = 35 * time.Second
	phonesRing = phones / phonesRate * time.Second
)

// phoneScenario is the scenario of each telephone that sipp simulates. The telephone calls, sends a recording in PCMU,
// and hangs up.
//
//go:embed phone.xml
var phoneScenario string

// measurePhones makes sipp call a gateway with the emulator. In the first measurement the telephones speak for 1 s of
// every 8 s, in the second all the time. If sipp is not installed, it only prints a message.
func measurePhones(ctx context.Context, o options, out io.Writer) error {
	if _, err := exec.LookPath("sipp"); err != nil {
		logProgress("no telephones: %v", err)
		return nil
	}
	const rate = 8000
	began := time.Now()
	t := newTable("telephones that speak", "1 s of 8", "all the time")
	cells := make([][]string, 2)
	for i, pcm := range [][]int16{
		append(mediatest.Tone(time.Second, rate, 440, 8000), make([]int16, media.Samples(7*time.Second, rate))...),
		mediatest.SynthesizeSpeech(8*time.Second, rate),
	} {
		var err error
		if cells[i], err = o.callByPhones(ctx, pcm); err != nil {
			return err
		}
	}
	for i, what := range []string{
		fmt.Sprintf("at once, PCMU, %d begun in a second", phonesRate), "from INVITE to 200: p50 / p95 / p99",
		"CPU of a call", "memory of a call", "the machine, with sipp and the emulator, idle",
	} {
		t.addRow(what, cells[0][i], cells[1][i])
	}
	return t.writeMarkdown(out, began)
}

// callByPhones starts a gateway, lets telephones send it pcm in a loop, and returns a row of the table that measurePhones prints.
func (o options) callByPhones(ctx context.Context, pcm []int16) (cells []string, err error) {
	folder, err := os.MkdirTemp("", "voxgate-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	model, err := o.startEmulator(ctx)
	if err != nil {
		return nil, err
	}
	defer model.stop()
	gateway, err := o.startStage(ctx, voxgate, silence, "COMPARE_MODEL="+model.url)
	if err != nil {
		return nil, err
	}
	defer gateway.close()
	before, err := gateway.residentMemory()
	if err != nil {
		return nil, err
	}
	logProgress("%d telephones, %d in a second", phones, phonesRate)
	done := make(chan error, 1)
	go func() { done <- runPhones(ctx, folder, gateway.sip, pcm) }()
	window, err := gateway.observePhones(ctx)
	if err = errors.Join(err, <-done); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.newestLog())
	}
	took, err := readSetupTimes(folder)
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%d of %d, none failed", len(took), phones), formatPercentiles(took),
		fmt.Sprintf("%.2f %% of a core", 100*window.cores/phones),
		formatMegabytes((window.memory - before) / phones), formatPercent(window.idle),
	}, nil
}

// runPhones runs sipp until all calls have ended.
func runPhones(ctx context.Context, folder, line string, pcm []int16) error {
	sound, file := filepath.Join(folder, "sound.ul"), filepath.Join(folder, "phone.xml")
	scenario := strings.NewReplacer("SOUND", sound, "TALK", fmt.Sprint(phonesTalk.Milliseconds())).Replace(phoneScenario)
	err := errors.Join(os.WriteFile(sound, g711.MuLaw.AppendEncoded(nil, pcm), 0o600), os.WriteFile(file, []byte(scenario), 0o600))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sipp", "-sf", file, "-m", fmt.Sprint(phones), "-l", fmt.Sprint(phones), "-r", fmt.Sprint(phonesRate),
		"-i", "127.0.0.1", "-trace_rtt", "-rtt_freq", "1", "-trace_err", "-nostdin", line)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "TERM=dumb")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sipp: %w\n%s", err, output[max(0, len(output)-2000):])
	}
	return nil
}

// observePhones measures a gateway while all telephones are talking.
func (p *process) observePhones(ctx context.Context) (w observed, err error) {
	const margin = 2 * time.Second
	if err := sleep(ctx, phonesRing+2*margin); err != nil {
		return w, err
	}
	before, err := p.readUsage()
	if err == nil {
		err = sleep(ctx, phonesTalk-phonesRing-4*margin)
	}
	if err != nil {
		return w, err
	}
	after, err := p.readUsage()
	if err != nil {
		return w, err
	}
	w.cores, w.idle = before.loadUntil(after)
	w.memory, err = p.residentMemory()
	return w, err
}

// readSetupTimes reads the response times that sipp has written. Each call has a line, with the time in ms in its
// second field.
func readSetupTimes(folder string) (took []time.Duration, err error) {
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
