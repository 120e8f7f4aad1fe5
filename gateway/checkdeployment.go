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

	"voxgate/gateway/deployment"
)

const deploymentHelp = `
Where the gateway wants a token, say one by VOXGATE_CHECK_TOKEN, or a server key that may mint tokens by VOXGATE_CHECK_KEY:
everybody sees a command line.
The model is asked to count to twenty once. The exit status is 1 if something is wrong.
`

// checkDeployment looks at a gateway from where its users are.
func checkDeployment(ctx context.Context, args []string, environ variables, stdout, stderr io.Writer) error {
	o := deployment.Options{Token: environ["VOXGATE_CHECK_TOKEN"], Key: environ["VOXGATE_CHECK_KEY"]}
	f := flag.NewFlagSet("gateway check deployment", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("origins", "`origins` of pages that must be let in, comma separated", list(&o.Origins, parseText))
	f.Func("sip", "`URIs` of telephone lines, comma separated, as sip:voice.example.com;transport=tcp", list(&o.SIP, parseText))
	f.StringVar(&o.Private, "private", "", "`URL` of the private listener, for what only the gateway knows: Redis, its disk, agents")
	f.DurationVar(&o.Stay, "stay", 65*time.Second, "how `long` a socket is held, to find a proxy that cuts it; 0: none is")
	f.DurationVar(&o.Talk, "talk", 10*time.Second, "how `long` the voice is listened to")
	asJSON := f.Bool("json", false, "print a JSON array, for programs")
	f.Usage = func() {
		fmt.Fprintln(stderr, "Usage of gateway check deployment URL:")
		f.PrintDefaults()
		fmt.Fprint(stderr, deploymentHelp)
	}
	// The URL may stand before the flags or behind them.
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		o.URL, args = args[0], args[1:]
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.URL = cmp.Or(o.URL, f.Arg(0)); o.URL == "" {
		return errors.New("check deployment wants the URL of a gateway, as https://voice.example.com")
	}
	if !*asJSON {
		o.Done = func(l deployment.Line) {
			sign := "well "
			if !l.Well {
				sign = "WRONG"
			}
			fmt.Fprintf(stdout, "%s  %-18s  %s\n", sign, l.Check, l.Found)
			if l.Mend != "" {
				fmt.Fprintf(stdout, "%27s%s\n", "", l.Mend)
			}
		}
	}
	lines, err := deployment.Check(ctx, o)
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
		if !l.Well {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d checks found something wrong", wrong, len(lines))
	}
	return nil
}
