package sip

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/media"
	"voxgate/media/g711"
)

// greetings are what people and machines say when they answer a call, by kind and by voice of espeak-ng.
var greetings = map[string]map[string][]string{
	ByPerson: {
		"en-us": {
			"Hello?", "Yes?", "Hi, this is Bob.", "Good morning, Smith speaking.", "Hello, Anna here.", "Who is this?", "Yeah, hello?",
			"Acme Limited, good afternoon.", "Hello? Hello?",
		},
		"de": {
			"Hallo?", "Ja?", "Müller.", "Ja, bitte?", "Schmidt, guten Tag.", "Praxis Doktor Weber, guten Tag.", "Hallo, wer ist da?",
			"Firma Krause, Meier.", "Anna Schneider.",
		},
		"es": {
			"¿Sí?", "¿Diga?", "¿Hola?", "Hola, buenos días.", "Dígame.", "¿Quién es?", "Farmacia López, buenas tardes.",
			"Sí, ¿quién habla?", "García al aparato.",
		},
	},
	ByMachine: {
		"en-us": {
			"Hi, you've reached Bob. I can't take your call right now. Please leave a message after the tone.",
			"The person you are calling is not available. At the tone, please record your message.",
			"Your call has been forwarded to an automatic voice message system.",
			"Hello, this is Anna Smith's voicemail, please leave your name and number and I will call you back.",
			"We are closed. Our opening hours are Monday to Friday from nine to five.",
			"The mailbox of five five five zero one nine nine is full.",
			"You have reached the voice mail of Carol, please leave a message.",
			"Thank you for calling Acme. For sales, press one. For support, press two.",
			"Welcome to the bank. To hear your balance press one, to speak to an agent press zero.",
		},
		"de": {
			"Dies ist die Mailbox von Anna Schneider. Bitte sprechen Sie nach dem Ton.",
			"Guten Tag, Sie sind verbunden mit dem Anschluss der Familie Weber. Wir sind zurzeit nicht erreichbar.",
			"Der gewünschte Gesprächspartner ist zurzeit nicht erreichbar. Bitte hinterlassen Sie eine Nachricht.",
			"Hallo, hier ist der Anrufbeantworter von Thomas und Petra, wir sind gerade nicht zu Hause.",
			"Sie rufen außerhalb unserer Öffnungszeiten an. Wir sind Montag bis Freitag für Sie da.",
			"Willkommen beim Kundendienst. Für Fragen zur Rechnung drücken Sie die eins.",
			"Kein Anschluss unter dieser Nummer. Kein Anschluss unter dieser Nummer.",
			"Die Person, die Sie anrufen, ist vorübergehend nicht erreichbar.",
		},
		"es": {
			"Ha llamado al buzón de voz de Carlos García. Deje su mensaje después de la señal.",
			"El teléfono al que llama está apagado o fuera de cobertura en este momento.",
			"Hola, soy María, ahora no puedo atenderte. Deja un mensaje y te llamaré.",
			"Bienvenido al servicio de atención al cliente. Para ventas, pulse uno.",
			"En este momento no podemos atenderle. Por favor, llame más tarde.",
			"Este es el contestador automático de la familia Pérez, deje su recado.",
			"El abonado no está disponible en este momento, inténtelo más tarde.",
			"Nuestro horario de atención es de lunes a viernes de nueve a dos.",
		},
	},
}

const earRate = 8000

// synthesizeSpeech returns a text spoken by espeak-ng, at 8 kHz.
func synthesizeSpeech(t *testing.T, voice, text string) []int16 {
	t.Helper()
	cmd := exec.Command("espeak-ng", "-v", voice, "--stdin", "--stdout")
	cmd.Stdin = strings.NewReader(text)
	wav, err := cmd.Output()
	if err != nil || len(wav) < 44 {
		t.Fatal(err)
	}
	pcm, err := media.Resample(media.AppendSamples(nil, wav[44:]), int(binary.LittleEndian.Uint32(wav[24:])), earRate)
	if err != nil {
		t.Fatal(err)
	}
	for len(pcm) > 0 && pcm[len(pcm)-1] < 50 && pcm[len(pcm)-1] > -50 { // trim the silence that espeak-ng appends
		pcm = pcm[:len(pcm)-1]
	}
	return pcm
}

func beep(hz float64, d time.Duration) []int16 {
	pcm := make([]int16, media.Samples(d, earRate))
	for i := range pcm {
		pcm[i] = int16(6000 * math.Sin(2*math.Pi*hz*float64(i)/earRate))
	}
	return pcm
}

func still(d time.Duration) []int16 { return make([]int16, media.Samples(d, earRate)) }

// overPhoneLine returns audio as it arrives by a phone line: after a pause, with noise, and encoded in G.711.
func overPhoneLine(pause time.Duration, parts ...[]int16) []int16 {
	pcm := slices.Concat(slices.Insert(parts, 0, still(pause))...)
	pcm = append(pcm, still(4*time.Second)...)
	random := rand.New(rand.NewPCG(1, uint64(len(pcm))))
	for i := range pcm {
		pcm[i] += int16(30 * random.NormFloat64())
	}
	return g711.ALaw.AppendDecoded(nil, g711.ALaw.AppendEncoded(nil, pcm))
}

// runDetector runs the detector on audio. It returns the result, and how long after the first sound that was known.
func runDetector(pcm []int16) (e *amdDetector, by string, took time.Duration) {
	e = &amdDetector{rate: earRate}
	for part := range slices.Chunk(pcm, 160) {
		e.analyzePCM(part)
		if by == "" && e.result != "" {
			by, took = e.result, e.now-e.began
		}
	}
	return e, by, took
}

// Answering-machine detection classifies who answered from the audio.
func TestAMDDetector(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("espeak-ng"); err != nil {
		t.Fatal("espeak-ng is missing: make test-deps")
	}
	type answer struct {
		name, want string
		pcm        []int16
	}
	var set []answer
	for want, voices := range greetings {
		for voice, texts := range voices {
			for i, text := range texts {
				pause, said := time.Duration(100+i*150)*time.Millisecond, synthesizeSpeech(t, voice, text)
				heard := overPhoneLine(pause, said)
				if want == ByMachine {
					heard = overPhoneLine(pause, said, still(300*time.Millisecond), beep(1000, 500*time.Millisecond))
				}
				set = append(set, answer{text, want, heard})
			}
		}
	}
	sit := slices.Concat(beep(950, 330*time.Millisecond), beep(1400, 330*time.Millisecond), beep(1800, 330*time.Millisecond))
	set = append(set,
		answer{"SIT", ByMachine, overPhoneLine(200*time.Millisecond, sit,
			synthesizeSpeech(t, "en-us", "The number you have dialled is not in service."))},
		answer{"short SIT with gaps", ByMachine, overPhoneLine(
			0,
			beep(914, 274*time.Millisecond), still(30*time.Millisecond),
			beep(1371, 274*time.Millisecond), still(30*time.Millisecond),
			beep(1777, 380*time.Millisecond),
		)},
		answer{"a beep", ByMachine, overPhoneLine(time.Second, beep(950, 400*time.Millisecond))},
		answer{"CNG", ByFax, overPhoneLine(time.Second, beep(1100, 500*time.Millisecond))},
		answer{"CED", ByFax, overPhoneLine(200*time.Millisecond, beep(2100, 2600*time.Millisecond))},
		answer{"nothing", BySilence, overPhoneLine(3 * time.Second)},
		answer{"nothing for long", BySilence, overPhoneLine(5 * time.Second)},
		answer{"two beeps", ByMachine, overPhoneLine(
			time.Second,
			beep(800, 150*time.Millisecond), still(100*time.Millisecond),
			beep(800, 150*time.Millisecond),
		)},
	)
	right := 0
	var times, persons []time.Duration
	for _, a := range set {
		e, by, took := runDetector(a.pcm)
		times = append(times, took)
		if a.want == ByPerson {
			persons = append(persons, took)
		}
		if by == a.want {
			right++
		} else {
			t.Logf("%q is %s, not %s, after %v", a.name, by, a.want, took)
		}
		if by == ByMachine && a.want == ByMachine && !e.ready {
			t.Errorf("%q: the machine never waits", a.name)
		}
		if by != ByMachine && e.ready {
			t.Errorf("%q: a message is left", a.name)
		}
		if e.hasFailureTones() != strings.Contains(a.name, "SIT") {
			t.Errorf("%q: that the call failed is %v", a.name, e.hasFailureTones())
		}
	}
	slices.Sort(times)
	slices.Sort(persons)
	p95, person := times[len(times)*95/100], persons[len(persons)/2]
	t.Logf("%d of %d right; known after %v at the median (persons %v), %v at p95", right, len(set), times[len(times)/2], person, p95)
	if len(set) < 60 || right*100 < 95*len(set) || person > 1500*time.Millisecond || p95 > 3*time.Second {
		t.Error("that is not good enough")
	}
}
