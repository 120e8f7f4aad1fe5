package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jfreymuth/oggvorbis"

	"voxgate/media"
	"voxgate/media/g722"
)

const (
	rate        = 16000
	floatFormat = 3 // format tag of a WAV file with 32-bit float samples
)

// Source packages of Python: a meeting (AMI, CC BY 4.0), and noises.
const meetingPackage, noisePackage = "pyannote-audio==4.0.7", "livekit-agents==1.8.9"

// unpackSounds is a shell command that unpacks only the recordings of a Debian package. Some packages have ten times as
// many other files. One has ZIP files (.pk3).
const unpackSounds = `dpkg-deb --fsys-tarfile "$1" | tar -x --wildcards --exclude='*/Music/*' '*.ogg' '*.wav' '*.g722' '*.pk3' 2>&1 |
  grep -v 'Not found in archive\|previous errors'
  find . -name '*.pk3' -execdir python3 -m zipfile -e {} . \; -delete; [ -d usr ]`

// fetchPackages downloads and unpacks what the cache does not have yet.
func (h half) fetchPackages(cache string) error {
	for _, name := range h.debian {
		if err := fetchPackage(filepath.Join(cache, name), func(dir string) error {
			if err := runCommand(dir, "apt-get", "download", name); err != nil {
				return err
			}
			files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
			if err != nil || len(files) != 1 {
				return fmt.Errorf("%s: %d files downloaded", name, len(files))
			}
			defer os.Remove(files[0])
			return runCommand(dir, "sh", "-c", unpackSounds, "sh", filepath.Base(files[0]))
		}); err != nil {
			return err
		}
	}
	for _, name := range h.python {
		if err := fetchPackage(filepath.Join(cache, name), func(dir string) error {
			project, _, _ := strings.Cut(name, "==")
			if err := runCommand(dir, "pip3", "download", "--quiet", "--no-deps", "--no-binary", project, "-d", ".", name); err != nil {
				return err
			}
			files, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
			if err != nil || len(files) != 1 {
				return fmt.Errorf("%s: %d files downloaded", name, len(files))
			}
			defer os.Remove(files[0])
			return runCommand(dir, "tar", "xzf", filepath.Base(files[0]))
		}); err != nil {
			fmt.Fprintf(os.Stderr, "turns: left out: %v\n", err) // not an error, because pip may be missing
		}
	}
	return nil
}

// fetchPackage fills a temporary folder and then renames it to dir, so that a folder with that name is complete.
func fetchPackage(dir string, fill func(dir string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "part")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	if err := fill(part); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

func runCommand(dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, bytes.TrimSpace(out))
	}
	return nil
}

// readClip decodes a recording to 16 kHz and brings its speech to -26 dBov.
func readClip(file string) ([]int16, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var pcm []int16
	switch filepath.Ext(file) {
	case ".g722":
		d, err := g722.Codec{}.NewDecoder(rate)
		if err != nil {
			return nil, err
		}
		for len(data) > 0 {
			n := min(len(data), 160)
			frame := make([]int16, 2*n)
			n, err := d.Decode(data[:n], frame)
			if err != nil {
				return nil, err
			}
			pcm, data = append(pcm, frame[:n]...), data[n/2:]
		}
	case ".wav":
		at := bytes.Index(data, []byte("data"))
		if at < 36 {
			return nil, errors.New(file + ": not a WAV file")
		}
		samples := decodeSamples(data[at+8:], binary.LittleEndian.Uint16(data[34:]))
		if binary.LittleEndian.Uint16(data[20:]) == floatFormat {
			samples = samples[:0]
			for b := data[at+8:]; len(b) >= 4; b = b[4:] {
				x := math.Float32frombits(binary.LittleEndian.Uint32(b))
				samples = append(samples, int16(max(-1, min(1, x))*32767))
			}
		}
		pcm = resample(samples, int(binary.LittleEndian.Uint32(data[24:])))
	case ".ogg":
		pcm, err = decodeVorbis(bytes.NewReader(data))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return normalize(pcm), nil
}

// decodeSamples reads samples of 16 bits, or of 8 bits without sign.
func decodeSamples(data []byte, bits uint16) (pcm []int16) {
	if bits != 8 {
		return media.AppendSamples(nil, data)
	}
	for _, b := range data {
		pcm = append(pcm, (int16(b)-128)<<8)
	}
	return pcm
}

func decodeVorbis(r io.Reader) ([]int16, error) {
	samples, format, err := oggvorbis.ReadAll(r)
	if errors.Is(err, io.EOF) { // one of the game's files is empty
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pcm := make([]int16, len(samples)/format.Channels)
	for i := range pcm {
		pcm[i] = int16(max(-1, min(1, samples[i*format.Channels])) * 32767)
	}
	return resample(pcm, format.SampleRate), nil
}

// resample converts audio from another rate (in Hz) to 16 kHz. Unlike media.Resample, which adds a random dither, it
// always gives the same result.
func resample(pcm []int16, from int) []int16 {
	if from == rate || len(pcm) == 0 {
		return pcm
	}
	r := media.NewResampler(from, rate)
	out := slices.Clone(r.Resample(pcm))
	return append(out, r.Flush()...)
}
