package main

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"voxgate/media"
)

// half is the training half or the test half of the corpus. It says which recordings belong to it.
type half struct {
	prompts   []string // folders of a language's prompts
	dialogues string   // language of the game's dialogues
	clips     [2]int   // maximum number of prompts of a voice, and of lines of the dialogues
	meeting   bool
	sounds    []soundSource // sounds to play over an answer, in addition to prompts and dialogues
	words     int           // number of short prompts and lines to add to the bursts
	babble    []int         // numbers of people who speak at once: a crowd made of the half's voices
	debian    []string      // packages that have the recordings
	python    []string
}

// The corpus is split by package, so that no recording is in both halves. The voices of Hedgewars, the noises of
// livekit-agents, and the meeting have been in the test half since before the first tuning with sounds of these kinds.
// Only the voice Allison is in both halves, in English and Spanish.
var (
	trainingHalf = half{
		prompts: []string{"en_US_f_Allison", "fr_CA_f_June"}, dialogues: "cs", clips: [2]int{300, 600},
		sounds: trainingSounds, words: 60, babble: []int{2, 3, 4, 6, 8, 12},
		debian: []string{
			"asterisk-core-sounds-en-g722", "asterisk-core-sounds-fr-g722", "asterisk-moh-opsound-g722", "etw-data", "fillets-ng-data-cs",
			"freetennis-common", "openarena-081-players", "scratch",
		},
	}
	testHalf = half{
		prompts:   []string{"es_MX_f_Allison", "it_IT_m_Carlo", "it_IT_f_Menardi", "ru_RU_f_IvrvoiceRU"},
		dialogues: "nl", clips: [2]int{100, 150}, meeting: true, sounds: testSounds,
		debian: []string{
			"asterisk-core-sounds-es-g722", "asterisk-core-sounds-it-g722", "asterisk-core-sounds-ru-g722", "asterisk-prompt-it-menardi-wav",
			"fillets-ng-data-nl", "hedgewars-data",
		},
		python: []string{meetingPackage, noisePackage},
	}
)

// unfinished lists prompts that do not end a turn, each followed by its continuations.
var unfinished = [][]string{
	{"vm-youhave", "digits/2", "vm-messages"},
	{"vm-theperson", "digits/5", "vm-isunavail"},
	{"at-tone-time-exactly", "digits/9"},
	{"queue-holdtime", "digits/3", "queue-minutes"},
	{"queue-thereare", "digits/7"},
	{"conf-thereare", "digits/4", "conf-otherinparty"},
	{"you-entered", "digits/6"},
	{"vm-onefor", "vm-INBOX"},
	{"vm-press", "digits/8"},
	{"is-set-to", "digits/2"},
	{"to-extension", "digits/3"},
	{"vm-from-extension", "digits/1"},
	{"vm-from-phonenumber", "digits/5"},
	{"vm-extension", "digits/4"},
	{"vm-toforward", "vm-press"},
	{"vm-tocallback", "vm-press"},
	{"vm-toreply", "vm-press"},
	{"vm-toenternumber", "vm-press"},
	{"vm-tohearenv", "vm-press"},
	{"vm-tomakecall", "vm-press"},
	{"to-listen-to-it", "vm-press"},
	{"to-rerecord-it", "vm-press"},
}

// fragments lists parts of the names of further prompts that are left out, because they do not end a turn or are not
// speech.
var fragments = []string{
	"vm-tocancel", "vm-next", "vm-prev", "vm-repeat", "vm-and", "vm-for",
	"tone", "beep", "tt-monkeys", "queue-", "spy-", "vm-changeto",
}

// item is a recording with known pauses.
type item struct {
	kind, voice string
	pcm         []int16
	pauses      [][2]int // start and end of each pause inside the turn, in samples
	end         int      // end of the last word, in samples
}

const (
	tail  = 3 * rate // samples of room noise after an item
	level = 1642     // RMS of speech: -26 dBov
	room  = 16       // RMS of room noise: -66 dBov
)

// builder makes a corpus. Its random numbers have a fixed seed, so that the corpus is always the same.
type builder struct {
	cache string
	rng   *rand.Rand
	items []item
	words [][]int16 // short clips
}

func buildCorpus(cache string, h half) ([]item, error) {
	b := &builder{cache: cache, rng: rand.New(rand.NewPCG(46, 46))}
	for _, voice := range h.prompts {
		if err := b.addPrompts(voice, h.clips[0]); err != nil {
			return nil, err
		}
	}
	if err := b.addDialogues(h.dialogues, h.clips[1]); err != nil {
		return nil, err
	}
	if h.meeting {
		if err := b.addMeeting(); err != nil {
			return nil, err
		}
	}
	for _, source := range h.sounds {
		if err := b.addSounds(source); err != nil {
			return nil, err
		}
	}
	b.addWords(h.words)
	for _, n := range h.babble {
		b.addBabble(n)
	}
	return b.items, nil
}

// roomNoise returns the sound of a room.
func (b *builder) roomNoise(n int) []int16 {
	pcm := make([]int16, n)
	for i := range pcm {
		pcm[i] = int16(math.Round(b.rng.NormFloat64() * room))
	}
	return pcm
}

// addItem adds an item of several parts, with pauses of the given lengths between them.
func (b *builder) addItem(kind, voice string, pauses []int, parts ...[]int16) {
	it := item{kind: kind, voice: voice, pcm: b.roomNoise(rate / 2)}
	for i, part := range parts {
		if i > 0 && i <= len(pauses) {
			from := len(it.pcm)
			it.pcm = append(it.pcm, b.roomNoise(pauses[i-1])...)
			it.pauses = append(it.pauses, [2]int{from, len(it.pcm)})
		}
		it.pcm = append(it.pcm, mix(part, b.roomNoise(len(part)))...)
	}
	it.end = len(it.pcm)
	it.pcm = append(it.pcm, b.roomNoise(tail)...)
	b.items = append(b.items, it)
}

// pauseLength returns 0.4 to 1.2 s.
func (b *builder) pauseLength() int { return rate*2/5 + b.rng.IntN(rate*4/5) }

func (b *builder) addPrompts(voice string, maxClips int) error {
	files, err := glob(b.cache, "asterisk-*", "usr/share/asterisk/sounds", voice, "*.*")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no prompts of %s", voice)
	}
	byName := func(name string) ([]int16, error) {
		found, err := glob(b.cache, "asterisk-*", "usr/share/asterisk/sounds", voice, name+".*")
		if err != nil || len(found) == 0 {
			return nil, err
		}
		pcm, err := readClip(found[0])
		return trimSilence(pcm), err
	}
	skip := slices.Clone(fragments)
	for _, names := range unfinished {
		skip = append(skip, names[0]+".")
		first, err := byName(names[0])
		if err != nil {
			return err
		}
		var rest []int16
		for _, name := range names[1:] {
			part, err := byName(name)
			if err != nil {
				return err
			}
			rest = append(append(rest, part...), make([]int16, rate/20)...)
		}
		if len(first) > 0 && len(rest) > 0 {
			b.addItem("hesit", voice, []int{b.pauseLength()}, first, rest)
		}
	}
	b.rng.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	return b.addClips(voice, files, maxClips, skip)
}

func (b *builder) addDialogues(language string, maxClips int) error {
	files, err := glob(b.cache, "fillets-ng-data-"+language, "usr/share/games/fillets-ng/sound/*", language, "*.ogg")
	if err != nil {
		return err
	}
	b.rng.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	return b.addClips("fillets-"+language, files, maxClips, nil)
}

// addClips adds clips of 1 to 15 s, maxClips at most. It adds each clip as the end of a turn, and as a turn with
// pauses. It leaves out files whose names contain a text in skip.
func (b *builder) addClips(voice string, files []string, maxClips int, skip []string) error {
	for _, file := range files {
		if slices.ContainsFunc(skip, func(s string) bool { return strings.Contains(filepath.Base(file), s) }) {
			continue
		}
		pcm, err := readClip(file)
		if err != nil {
			return err
		}
		pcm = trimSilence(pcm)
		if len(pcm) >= shortestWord && len(pcm) <= longestWord {
			b.words = append(b.words, pcm)
		}
		if len(pcm) < rate || len(pcm) > 15*rate {
			continue
		}
		if maxClips--; maxClips < 0 {
			break
		}
		b.addItem("ends", voice, nil, pcm)
		levels, threshold := frameLevels(pcm)
		gaps := findGaps(levels, threshold, 15)
		if len(gaps) > 0 {
			g := gaps[b.rng.IntN(len(gaps))]
			b.addItem("pause", voice, []int{b.pauseLength()}, pcm[:g[0]*160], pcm[g[1]*160:])
		}
		if natural := findGaps(levels, threshold, 25); len(natural) > 0 {
			b.addSpoken("natural", voice, pcm, natural)
		}
		if at, ok := b.findDip(levels, threshold, gaps); ok {
			b.addItem("mid", voice, []int{b.pauseLength()}, pcm[:at*160], pcm[at*160:])
		}
	}
	return nil
}

// addSpoken adds a clip whose speaker makes pauses. gaps are the positions of the pauses, in frames of 10 ms.
func (b *builder) addSpoken(kind, voice string, pcm []int16, gaps [][2]int) {
	b.addItem(kind, voice, nil, pcm)
	it := &b.items[len(b.items)-1]
	for _, g := range gaps {
		it.pauses = append(it.pauses, [2]int{rate/2 + g[0]*160, rate/2 + g[1]*160})
	}
}

// findDip returns a random frame at which the voice becomes quieter in the middle of a phrase. The frame is at least
// 0.5 s from the ends of the clip and 0.3 s from gaps. ok is false if the clip has no such frame.
func (b *builder) findDip(levels []float64, threshold float64, gaps [][2]int) (frame int, ok bool) {
	var dips []int
	for i := 50; i < len(levels)-50; i++ {
		if levels[i] < 2*threshold && levels[i] == slices.Min(levels[i-15:i+15]) &&
			!slices.ContainsFunc(gaps, func(g [2]int) bool { return i > g[0]-30 && i < g[1]+30 }) {
			dips = append(dips, i)
		}
	}
	if len(dips) == 0 {
		return 0, false
	}
	return dips[b.rng.IntN(len(dips))], true
}

// addMeeting adds the monologues of the meeting with their pauses.
func (b *builder) addMeeting() error {
	lists, err := glob(b.cache, "pyannote-audio*", "pyannote_audio-*", "tests/data", "debug.*.rttm")
	if err != nil {
		return err
	}
	for _, list := range lists {
		segments, err := readSegments(list)
		if err != nil {
			return err
		}
		for _, s := range segments {
			if s.to-s.from < 2.5 || overlap(s, segments) > 0.7 {
				continue
			}
			// One file has an accent in its name, but its name in the list does not.
			files, err := filepath.Glob(filepath.Join(filepath.Dir(list), strings.Replace(s.file, "trn00", "tr*00", 1)+".wav"))
			if err != nil || len(files) == 0 {
				return fmt.Errorf("%s: no recording of %s", list, s.file)
			}
			pcm, err := readClip(files[0])
			if err != nil {
				return err
			}
			pcm = normalize(pcm[int(s.from*rate):min(len(pcm), int(s.to*rate))])
			levels, threshold := frameLevels(pcm)
			if gaps := findGaps(levels, threshold*3, 25); len(gaps) > 0 {
				b.addSpoken("meeting", s.speaker, pcm, gaps)
			}
		}
	}
	return nil
}

// segment is the speech of one person in a meeting, in seconds.
type segment struct {
	file, speaker string
	from, to      float64
}

// overlap returns for how many seconds other people speak during a segment.
func overlap(s segment, segments []segment) (seconds float64) {
	for _, o := range segments {
		if o != s && o.file == s.file {
			seconds += max(0, min(o.to, s.to)-max(o.from, s.from))
		}
	}
	return seconds
}

// readSegments reads from a file who speaks when. It joins segments of one speaker that are less than 1.2 s apart.
func readSegments(list string) ([]segment, error) {
	f, err := os.Open(list)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var segments []segment
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s segment
		var length float64
		if _, err := fmt.Sscanf(lines.Text(), "SPEAKER %s 1 %f %f <NA> <NA> %s", &s.file, &s.from, &length, &s.speaker); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", list, lines.Text(), err)
		}
		s.to = s.from + length
		joined := false
		for i := range segments {
			if o := &segments[i]; o.file == s.file && o.speaker == s.speaker && s.from-o.to < 1.2 {
				o.to, joined = max(o.to, s.to), true
			}
		}
		if !joined {
			segments = append(segments, s)
		}
	}
	return segments, nil
}

func glob(parts ...string) ([]string, error) { return filepath.Glob(filepath.Join(parts...)) }

// frameLevels returns the RMS of each 10 ms. threshold is the minimum level that counts as speech. It is 30 dB below
// the loudest frame.
func frameLevels(pcm []int16) (levels []float64, threshold float64) {
	for i := 0; i+160 <= len(pcm); i += 160 {
		levels = append(levels, media.RMS(pcm[i:i+160]))
	}
	if len(levels) == 0 {
		return nil, 0
	}
	sorted := slices.Sorted(slices.Values(levels))
	return levels, max(20, sorted[len(sorted)*95/100]/32)
}

// findGaps returns the gaps of at least minFrames frames that are 0.4 s or more from both ends.
func findGaps(levels []float64, threshold float64, minFrames int) (gaps [][2]int) {
	from := -1
	for i, l := range levels {
		switch {
		case l < threshold && from < 0:
			from = i
		case l >= threshold && from >= 0:
			if i-from >= minFrames && from >= 40 && i < len(levels)-40 {
				gaps = append(gaps, [2]int{from, i})
			}
			from = -1
		}
	}
	return gaps
}

// trimSilence cuts off the silence at both ends.
func trimSilence(pcm []int16) []int16 {
	levels, threshold := frameLevels(pcm)
	loud := func(l float64) bool { return l >= threshold }
	first := slices.IndexFunc(levels, loud)
	if first < 0 {
		return nil
	}
	last := len(levels) - 1
	for !loud(levels[last]) {
		last--
	}
	return pcm[first*160 : (last+1)*160]
}

// normalize scales audio so that its frames of speech have a level of -26 dBov.
func normalize(pcm []int16) []int16 {
	levels, threshold := frameLevels(pcm)
	sum, n := 0.0, 0
	for _, l := range levels {
		if l >= 3*threshold {
			sum += l * l
			n++
		}
	}
	if n == 0 {
		return pcm
	}
	return scale(pcm, level/math.Sqrt(sum/float64(n)))
}

func scale(pcm []int16, gain float64) []int16 {
	out := make([]int16, len(pcm))
	for i, s := range pcm {
		out[i] = int16(max(-32768, min(32767, float64(s)*gain)))
	}
	return out
}

func mix(a, b []int16) []int16 {
	out := make([]int16, len(a))
	for i := range a {
		out[i] = int16(max(-32768, min(32767, int(a[i])+int(b[i]))))
	}
	return out
}
