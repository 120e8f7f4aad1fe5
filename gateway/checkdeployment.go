package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"voxgate/gateway/check"
)

const deploymentHelp = `
If the gateway requires a token, set VOXGATE_CHECK_TOKEN, or VOXGATE_CHECK_KEY to a server key that may mint tokens.
There is no flag for them, because other users of the machine can see a command line.
The model is asked once to count to twenty. The exit status is 1 if a check fails.
`

// checkDeployment implements gateway check deployment: it checks a gateway from the network of its users.
func checkDeployment(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
	o := check.Options{Token: environ["VOXGATE_CHECK_TOKEN"], Key: environ["VOXGATE_CHECK_KEY"]}
	f := flag.NewFlagSet("gateway check deployment", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("origins", "`origins` of pages that must be accepted, comma separated", parseList(&o.Origins, parseText))
	f.Func("sip", "`URIs` of telephone lines, comma separated, as sip:voice.example.com;transport=tcp", parseList(&o.SIP, parseText))
	f.StringVar(&o.Private, "private", "", "`URL` of the private listener, to check Redis, disks and agents")
	f.DurationVar(&o.Stay, "stay", 65*time.Second,
		"how `long` an idle socket is kept open, to detect proxies that close it; 0 skips the check")
	f.DurationVar(&o.Talk, "talk", 10*time.Second, "how `long` the voice is measured")
	asJSON := f.Bool("json", false, "print a JSON array, for programs")
	f.Usage = func() {
		fmt.Fprintln(stderr, "Usage of gateway check deployment URL:")
		f.PrintDefaults()
		fmt.Fprint(stderr, deploymentHelp)
	}
	// Users may write the URL before or after the flags.
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		o.URL, args = args[0], args[1:]
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.URL = cmp.Or(o.URL, f.Arg(0)); o.URL == "" {
		return errors.New("check deployment needs the URL of a gateway, like https://voice.example.com")
	}
	if !*asJSON {
		o.Done = func(l check.Result) {
			sign := "well "
			if !l.Passed {
				sign = "WRONG"
			}
			fmt.Fprintf(stdout, "%s  %-18s  %s\n", sign, l.Check, l.Found)
			if l.Remedy != "" {
				fmt.Fprintf(stdout, "%27s%s\n", "", l.Remedy)
			}
		}
	}
	lines, err := check.CheckGateway(ctx, o)
	if err != nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		if err := enc.Encode(lines); err != nil {
			return err
		}
	}
	wrong := 0
	for _, l := range lines {
		if !l.Passed {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d checks failed", wrong, len(lines))
	}
	return nil
}
