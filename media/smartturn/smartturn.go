// Package smartturn judges with a neural network whether a person who pauses has finished. The network is smart-turn v3
// of Daily (https://github.com/pipecat-ai/smart-turn, BSD-2-Clause), the encoder of Whisper tiny with a classifier. It
// judges better than package prosody, and needs 30 times the CPU time. Neither the network nor ONNX Runtime, which runs
// it, is part of the program: both are files that [Load] opens (`make turn-model` gets them).
//
// The network was trained on 8 s of audio. Load cuts the network's input to the last 2 s, which is as good and needs a
// fifth of the time (see shortenModel).
package smartturn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	ort "github.com/yalue/onnxruntime_go"
)

// Rate is the sample rate of the input in Hz.
const Rate = 16000

const (
	inputName  = "input_features"
	outputName = "logits" // the value is a probability in spite of this name
)

// network runs the model. It may be used concurrently, with one [analysis] for each call.
type network struct{ session *ort.DynamicAdvancedSession }

// library is the loaded library of ONNX Runtime. A process can have only one.
var library struct {
	sync.Mutex
	file string
}

// loadLibrary opens ONNX Runtime, which stays open for the life of the process.
func loadLibrary(file string) error {
	library.Lock()
	defer library.Unlock()
	switch library.file {
	case file:
		return nil
	case "":
	default:
		return fmt.Errorf("%s: already loaded from %s", file, library.file)
	}
	path, err := filepath.Abs(file) // dlopen searches for a name without a slash in other folders
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(ort.WithLogLevelError()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	library.file = file
	return nil
}

// loadNetwork opens the library and the model.
func loadNetwork(libraryFile, modelFile string) (*network, error) {
	model, err := os.ReadFile(modelFile)
	if err != nil {
		return nil, err
	}
	if model, err = shortenModel(model); err != nil {
		return nil, fmt.Errorf("%s: %w", modelFile, err)
	}
	if err := loadLibrary(libraryFile); err != nil {
		return nil, fmt.Errorf("ONNX Runtime: %w", err)
	}
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	// With one thread, ONNX Runtime uses only the caller's. Without an arena, it keeps no memory between the questions.
	//
	// Without the precision setting, products of 8-bit numbers overflow 16 bits on x86 CPUs without VNNI, and
	// probabilities are wrong by up to 0.5. The setting costs 5 % of the speed on these CPUs, and nothing on others
	// (onnxruntime#14642).
	if err := errors.Join(options.SetIntraOpNumThreads(1), options.SetInterOpNumThreads(1), options.SetCpuMemArena(false),
		options.AddSessionConfigEntry("session.x64quantprecision", "1")); err != nil {
		return nil, err
	}
	session, err := ort.NewDynamicAdvancedSessionWithONNXData(model, []string{inputName}, []string{outputName}, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", modelFile, err)
	}
	return &network{session}, nil
}

// predict returns the probability that the person has finished speaking. It uses the calling thread only.
func (n *network) predict(a *analysis, pcm []int16) (float64, error) {
	input, err := ort.NewTensor(ort.NewShape(1, melBands, melFrames), a.melSpectrogram(pcm))
	if err != nil {
		return 0, err
	}
	defer input.Destroy()
	output := []ort.Value{nil}
	if err := n.session.Run([]ort.Value{input}, output); err != nil {
		return 0, err
	}
	defer output[0].Destroy()
	tensor, isFloat := output[0].(*ort.Tensor[float32])
	if !isFloat || len(tensor.GetData()) != 1 {
		return 0, errors.New("the model's output is not one number")
	}
	return float64(tensor.GetData()[0]), nil
}

func (n *network) close() { _ = n.session.Destroy() }
