// Command turns measures when the gateway detects the end of a person's turn, and which sounds interrupt the model. It
// uses recordings from published packages.
//
//	go run -C lab ./turns -cache DIR           prints the table of `make bench-turns`
//	go run -C lab ./turns -cache DIR training  prints the same of the training half, with which constants and thresholds are tuned
//	go run -C lab ./turns -cache DIR train     writes the coefficients of media/prosody and media/smartturn from the training voices
//
// The packages (250 MB for the test, 180 MB for the training) are downloaded to the cache and unpacked there; nothing
// is installed. The recordings are for tests only.
//
// The corpus has limits. Prompts are read and lines of games are acted, so the speakers do not search for words. The
// pauses in mid-phrase are silence that this program inserts where the voice dips. The meeting has few pauses. Echo and
// voices of children are missing.
package main

import (
	"flag"
	"fmt"
	"os"

	"voxgate/media/smartturn"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("turns", flag.ContinueOnError)
	cache := f.String("cache", ".cache/turns", "`folder` of the packages")
	model := f.String("model", os.Getenv("VOXGATE_TURN_MODEL"), "`file` of the end-of-turn model; empty: none")
	library := f.String("onnxruntime", os.Getenv("VOXGATE_ONNXRUNTIME"), "`file` of ONNX Runtime")
	prosodyFile := f.String("prosody", "../media/prosody/coefficients.go", "`file` of coefficients that train writes")
	judgeFile := f.String("judge", "../media/smartturn/coefficients.go", "`file` of coefficients that train writes if there is a model")
	if err := f.Parse(args); err != nil {
		return err
	}
	h, isTraining := testHalf, f.Arg(0) == "train" || f.Arg(0) == "training"
	if isTraining {
		h = trainingHalf
	}
	if err := h.fetchPackages(*cache); err != nil {
		return err
	}
	var judge *smartturn.Judge
	if *model != "" {
		var err error
		if judge, err = smartturn.Load(*library, *model, 0); err != nil {
			return err
		}
		defer judge.Close()
	}
	c, err := buildCorpus(*cache, h)
	if err != nil {
		return err
	}
	switch f.Arg(0) {
	case "", "training":
		printBenchmark(os.Stdout, c, judge)
		return nil
	case "train":
		return train(c, judge, *prosodyFile, *judgeFile)
	default:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
}
