package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/probe"
	"voxgate/bridge/pricing"
	"voxgate/tools"
)

// checkUsage lists the forms of gateway check.
const checkUsage = `Usage:

  gateway check google [flags]    compares Google's Live API, with the key of the environment, with what this gateway assumes
  gateway check replay FILE       lists where the built-in emulator differs from a report of check google
  gateway check deployment URL    checks a gateway from the network of its users, and names the setting that fixes each fault
`

// runCheckCommand implements gateway check.
func runCheckCommand(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == "google":
		return checkGoogle(ctx, args[1:], environ, stdout, stderr)
	case len(args) > 0 && args[0] == "deployment":
		return checkDeployment(ctx, args[1:], environ, stdout, stderr)
	case len(args) == 2 && args[0] == "replay":
		return replayReport(ctx, args[1], stdout)
	case len(args) == 1 && strings.HasPrefix(args[0], "-h"), len(args) == 1 && args[0] == "--help":
		_, err := io.WriteString(stdout, checkUsage)
		return err
	}
	if _, err := io.WriteString(stderr, checkUsage); err != nil {
		return err
	}
	return errors.New("check needs google, deployment with a URL, or replay with a file")
}

// checkGoogle holds short conversations with the Live API, and prints where it differs from what this gateway assumes.
func checkGoogle(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
	o := probe.Options{Prices: pricing.Default}
	f := flag.NewFlagSet("gateway check google", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Float64Var(&o.Dollars, "budget", 0.5, "`dollars` to spend at most; probes that could exceed them are skipped")
	f.Func("models", "`names` of the models, comma separated; default: those of the gateway's table", parseList(&o.Models, parseText))
	f.IntVar(&o.Parallel, "parallel", 2, "`conversations` at once; Google's free tier allows 3")
	f.BoolVar(&o.Long, "long", false, "wait for the end of a connection, too: ten minutes for each model")
	out := f.String("out", "", "a `file` for the report, without the key, handles and sound: attach it to an issue")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var s settings
	if err := s.readGoogleVariables(environ); err != nil {
		return err
	}
	if s.apiKey == "" && s.baseURL == "" && !s.vertex {
		return errors.New("check google needs a key: set GEMINI_API_KEY, or what Vertex AI wants (docs/settings.md#gemini)")
	}
	client, _, _, err := newGeminiClient(s, slog.New(slog.DiscardHandler)) // settings with a key or URL never start an emulator
	if err != nil {
		return err
	}
	o.Client = client
	n, most := probe.Count(o)
	fmt.Fprintf(stdout, "%d probes with %s; they cost at most $%.2f and stop at $%.2f.\n\n", n, serverName(s), most, o.Dollars)
	o.Done = func(r probe.Result) { fmt.Fprintf(stdout, "%-24s  %s\n", r.Verdict, r.ID()) }
	results := probe.Run(ctx, o)
	report := probe.Report{
		Made: time.Now().UTC().Truncate(time.Second), Version: describeVersion(), Server: serverName(s), Results: results,
	}.WithoutPrivateDetails()
	printSummary(stdout, report)
	if *out == "" {
		return nil
	}
	encoded, err := json.MarshalIndent(report, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out, append(encoded, '\n'), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nThe report is in %s.\n", *out)
	return nil
}

func serverName(s settings) string {
	switch {
	case s.baseURL != "":
		return "another server"
	case s.vertex:
		return "Vertex AI"
	}
	return "the Gemini API"
}

// columns lists the columns of the table of verdicts.
var columns = []struct {
	head    string
	verdict probe.Verdict
}{
	{"as assumed", probe.AsAssumed},
	{"different", probe.Different},
	{"learned", probe.Learned},
	{"no access", probe.Unavailable},
	{"not run", probe.NotRun},
}

// printSummary prints the table of verdicts and each difference.
func printSummary(w io.Writer, report probe.Report) {
	var models []string
	counts := map[string]int{}
	dollars := 0.0
	for _, r := range report.Results {
		if !slices.Contains(models, r.Model) {
			models = append(models, r.Model)
		}
		counts[r.Model+string(r.Verdict)]++
		dollars += r.Dollars
	}
	fmt.Fprintf(w, "\n%-50s", "model")
	for _, c := range columns {
		fmt.Fprintf(w, "  %s", c.head)
	}
	fmt.Fprintln(w)
	for _, m := range models {
		fmt.Fprintf(w, "%-50s", m)
		for _, c := range columns {
			fmt.Fprintf(w, "  %*d", len(c.head), counts[m+string(c.verdict)])
		}
		fmt.Fprintln(w)
	}
	for _, r := range report.Results {
		switch r.Verdict {
		case probe.Different:
			fmt.Fprintf(w, "\nDIFFERENT %s\n  assumed  %s\n  found    %s\n", r.ID(), joinFindings(r.Assumed), joinFindings(r.Found))
		case probe.Learned:
			fmt.Fprintf(w, "\nLEARNED   %s\n  found    %s\n", r.ID(), joinFindings(r.Found))
		default:
			continue
		}
		for _, note := range r.Notes {
			fmt.Fprintf(w, "           %s\n", note)
		}
	}
	fmt.Fprintf(w, "\nCost: $%.3f, by Google's token counts and our price table.\n", dollars)
}

func joinFindings(list []string) string { return cmp.Or(strings.Join(list, ", "), "nothing") }

// readReport reads the file of a report.
func readReport(path string) (probe.Report, error) {
	var report probe.Report
	text, err := os.ReadFile(path)
	if err == nil {
		err = tools.ReadLenientJSON(text, &report)
	}
	if err != nil {
		return report, fmt.Errorf("%s: %w", path, tools.ExplainJSON(err, ""))
	}
	return report, nil
}

// readFindings reads a report of check google and returns its findings by model, or nil if path is empty.
func readFindings(path string) (map[string]liveconfig.Findings, error) {
	if path == "" {
		return nil, nil
	}
	report, err := readReport(path)
	if err == nil && len(report.Results) == 0 {
		err = fmt.Errorf("%s is not a report of check google: it has no results", path)
	}
	return report.Findings(), err
}

// replayReport runs the probes of a report against the emulator, and prints where the emulator differs from the report.
func replayReport(ctx context.Context, file string, stdout io.Writer) error {
	report, err := readReport(file)
	if err != nil {
		return err
	}
	client := &api.Client{APIKey: "of the emulator"}
	if report.Server == "Vertex AI" {
		client = &api.Client{Vertex: api.Emulated()}
	}
	url, _, stop, err := startEmulator("127.0.0.1:0", emulator.Options{})
	if err != nil {
		return err
	}
	defer stop()
	client.BaseURL = url
	here := probe.Run(ctx, probe.Options{Client: client, Models: report.Models(), Dollars: 1e6, Prices: pricing.Default, Parallel: 8})
	different, compared := probe.CompareResults(report.Results, here)
	for _, d := range different {
		fmt.Fprintln(stdout, d)
	}
	fmt.Fprintf(stdout, "%d probes compared, %d differ.\n", compared, len(different))
	if len(different) > 0 {
		return errors.New("the emulator differs from the report")
	}
	return nil
}
