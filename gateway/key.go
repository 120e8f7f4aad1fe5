package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"voxgate/signaling/access"
)

// createKey implements gateway key new NAME: it creates a server key.
func createKey(args []string, environ variables, stdout, stderr io.Writer) error {
	if len(args) == 0 || args[0] != "new" {
		return errors.New("usage: gateway key new [flags] NAME")
	}
	f := flag.NewFlagSet("gateway key new", flag.ContinueOnError)
	f.SetOutput(stderr)
	file := f.String("keys", cmp.Or(environ[envName("keys")], "keys.json"), "JSON `file` of the keys; it is created if it does not exist")
	may := f.String("may", access.MayMint, "what the key may do, comma separated: "+access.MayMint+" (mint them), "+
		access.MayWatch+" (watch and steer its own conversations), "+
		access.MayWatchAll+" (those of all), "+access.MayListen+" (hear them), "+
		access.MayTalk+" (without a token), "+access.MayCall+" (ring telephones)")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() != 1 || f.Arg(0) == "" {
		return errors.New("usage: gateway key new [flags] NAME")
	}
	newKey, err := access.NewKey(*file, f.Arg(0), strings.Split(*may, ","))
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s has the hash of the key %q. This is the key; it can be read nowhere again:\n", *file, f.Arg(0))
	fmt.Fprintln(stdout, newKey)
	return nil
}
