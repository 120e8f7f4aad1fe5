package main

import (
	"fmt"
	"math"
	"path/filepath"
)

// soundSource lists recordings of a package that are played over an answer.
type soundSource struct {
	kind  string // bursts, stops or noises
	parts string // package (pattern), and the folder in it
	names []string
	// isRepeated is set if noises of less than 4 s are repeated up to that length. Otherwise they are left out.
	isRepeated bool
}

// testSounds has the people of Hedgewars and the noises of livekit-agents. The kind "bursts" is for sounds with which
// people do not want to interrupt, and the kind "stops" for words with which they do.
var testSounds = []soundSource{
	{"bursts", "hedgewars-data/usr/share/games/hedgewars/Data/Sounds/voices/*", []string{
		"Hmm*.ogg", "Laugh*.ogg", "PoisonCough*.ogg", "Ow*.ogg", "Ooff*.ogg", "Uh-oh*.ogg", "Oops*.ogg", "Yessir*.ogg",
	}, false},
	{"stops", "hedgewars-data/usr/share/games/hedgewars/Data/Sounds/voices/*", []string{
		"Leavemealone*.ogg", "Cutitout*.ogg", "Stupid*.ogg", "Nooo*.ogg", "Hurry*.ogg", "Justyouwait*.ogg", "Traitor*.ogg",
	}, false},
	{"noises", "livekit-agents*/livekit_agents-*/livekit/agents/resources", []string{"*.ogg"}, false},
}

// actorSounds are patterns for the sounds of OpenArena's actors, who gasp, groan and shout.
var actorSounds = []string{"[Dd]eath*.wav", "fall1.wav", "gasp.wav", "jump1.wav", "[Pp]ain*.wav"}

// trainingSounds has the people of three other games, among them 14 actors of OpenArena, and human sounds of Scratch.
// Its noises are crowds, traffic, steps and music. There are no stops; the prompts and dialogues of the training half
// take their place.
var trainingSounds = []soundSource{
	{"bursts", "openarena-081-players/usr/share/games/openarena/baseoa/sound/player/[^ps]*", actorSounds, false},
	{"bursts", "openarena-081-players/usr/share/games/openarena/baseoa/sound/player/s[^k]*", actorSounds, false},
	{"bursts", "freetennis-common/usr/share/sounds/freetennis-common/sfx", []string{
		"Ahh.wav", "contrazione*.wav", "fatica.wav", "fh*.wav", "hff.wav", "hm.wav",
	}, false},
	{"bursts", "scratch/usr/share/scratch/Media/Sounds/Human", []string{"Cough*.wav", "Laugh*.wav", "Sneeze*.wav"}, false},
	{"bursts", "etw-data/usr/share/games/etw/snd", []string{"ouch*.wav"}, false},
	{"noises", "scratch/usr/share/scratch/Media/Sounds/*", []string{
		"PartyNoise.wav", "Footsteps-1.wav", "CarPassing.wav", "MotorcyclePassing.wav", "Crickets.wav",
	}, false},
	{"noises", "freetennis-common/usr/share/sounds/freetennis-common/sfx", []string{"pubblico.wav"}, true},
	{"noises", "etw-data/usr/share/games/etw/*", []string{"crowd0*.wav", "crowd1*.wav", "fondo.wav"}, true},
	{"noises", "asterisk-moh-opsound-g722/usr/share/asterisk/moh", []string{"*.g722"}, false},
}

const (
	noiseLength = 4 * rate
	noiseGain   = 0.3 // 10 dB below a voice
	// shortestWord and longestWord limit the recordings that count as a word.
	shortestWord, longestWord = rate / 5, 9 * rate / 10
)

// addSounds adds the recordings of a source. It adds bursts and stops whole, and from each noise up to five parts of 4
// s.
func (b *builder) addSounds(source soundSource) error {
	for _, name := range source.names {
		files, err := glob(b.cache, source.parts, name)
		if err != nil {
			return err
		}
		for _, file := range files {
			pcm, err := readClip(file)
			if err != nil {
				return err
			}
			if source.kind != "noises" {
				b.addItem(source.kind, filepath.Base(file), nil, trimSilence(pcm))
				continue
			}
			for source.isRepeated && len(pcm) < noiseLength {
				pcm = append(pcm, pcm...)
			}
			for i := range 5 {
				if at := i * len(pcm) / 5; at+noiseLength <= len(pcm) {
					b.addItem("noises", filepath.Base(file), nil, scale(pcm[at:at+noiseLength], noiseGain))
				}
			}
		}
	}
	return nil
}

// addWords adds short words, such as "yes" or "hm" over an answer, as bursts: maxWords at most. They are the shortest
// prompts and lines of the dialogues, chosen at random from all voices.
func (b *builder) addWords(maxWords int) {
	b.rng.Shuffle(len(b.words), func(i, j int) { b.words[i], b.words[j] = b.words[j], b.words[i] })
	for _, pcm := range b.words[:min(maxWords, len(b.words))] {
		b.addItem("bursts", "word", nil, pcm)
	}
}

// addBabble adds noises in which this number of people speak at once. Each of them speaks without pauses between
// sentences.
func (b *builder) addBabble(people int) {
	var clips [][]int16
	for _, it := range b.items {
		if it.kind == "ends" {
			clips = append(clips, it.pcm[rate/2:it.end])
		}
	}
	for range 5 {
		sum := make([]float64, noiseLength)
		for range people {
			for at := 0; at < noiseLength; {
				for _, s := range clips[b.rng.IntN(len(clips))] {
					if at < noiseLength {
						sum[at] += float64(s)
					}
					at++
				}
			}
		}
		pcm := make([]int16, noiseLength)
		for i, x := range sum {
			pcm[i] = int16(x / math.Sqrt(float64(people)) / 4) // cannot overflow
		}
		b.addItem("noises", fmt.Sprintf("babble of %d", people), nil, scale(normalize(pcm), noiseGain))
	}
}
