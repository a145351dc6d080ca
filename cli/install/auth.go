package install

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/functions"
)

type authFlags struct {
	dir                       string
	functions, senders, hosts []string
	httpFunctions, forwarders []string
	secrets                   string // a namespace
	prefix                    string // of the names of Secrets
	manifests                 bool   // --secrets was given
}

func (a *authFlags) bind(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&a.dir, "auth", "", "write the keys and rights of all participants into this directory, and touch no bus")
	f.StringArrayVar(&a.functions, "function", nil, "with --auth: NAME=SUBJECT, a function outside that is asked there; repeatable")
	f.StringArrayVar(&a.httpFunctions, "http-function", nil, "with --auth: NAME, a function outside that is asked over HTTP; repeatable")
	f.StringArrayVar(&a.senders, "sender", nil, "with --auth: NAME, a program that may ask for something; repeatable")
	f.StringArrayVar(&a.forwarders, "forwarder", nil, "with --auth: NAME, a name of rehome forward; repeatable")
	f.StringSliceVar(&a.hosts, "tls", nil, "with --auth: HOST,..., make certificates for servers of these names or addresses")
	f.StringVar(&a.secrets, "secrets", "", "with --auth: NAMESPACE, print a Secret for the servers and one for each participant")
	f.StringVar(&a.prefix, "prefix", secretPrefix, "with --secrets: NAME, how the names of the Secrets begin, such as NAME-server")
}

// check refuses flags that need --auth or --secrets.
func (a authFlags) check() error {
	if a.prefix != secretPrefix && !a.manifests {
		return fmt.Errorf("--prefix: want it with --secrets NAMESPACE, got %q and no --secrets", a.prefix)
	}
	if a.dir == "" && (a.manifests || len(a.functions)+len(a.httpFunctions)+len(a.senders)+len(a.forwarders)+len(a.hosts) > 0) {
		return fmt.Errorf("--function, --http-function, --sender, --forwarder, --tls and --secrets: want them with --auth DIR, got no --auth")
	}
	return nil
}

func (a authFlags) config() (credentials.Config, error) {
	c := credentials.Config{Hosts: a.hosts, HTTPFunctions: a.httpFunctions}
	for _, f := range functions.Hosted() {
		c.BuiltIn = append(c.BuiltIn, f.Strategy.Name)
	}
	for _, text := range a.functions {
		name, subject, ok := strings.Cut(text, "=")
		if !ok {
			return c, fmt.Errorf("--function: want NAME=SUBJECT such as KeepOffSpot=functions.keep-off-spot, got %q", text)
		}
		c.Functions = append(c.Functions, bus.Participant{Role: bus.RoleFunction, Name: name, Subject: subject})
	}
	for _, name := range a.senders {
		c.Senders = append(c.Senders, bus.Participant{Role: bus.RoleSender, Name: name})
	}
	for _, name := range a.forwarders {
		c.Forwarders = append(c.Forwarders, bus.Participant{Role: bus.RoleForwarder, Name: name})
	}
	return c, nil
}

// write writes the files, and prints the Secrets if they are asked for: then they are all that out gets, and what was done is
// said to notes. Otherwise that is said to out.
func (a authFlags) write(out, notes io.Writer) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	if !a.manifests {
		return a.writeFiles(c, out)
	}
	if err := checkSecrets(a.dir, a.secrets, a.prefix, c); err != nil {
		return err
	}
	if err := a.writeFiles(c, notes); err != nil {
		return err
	}
	bundles, err := credentials.Bundles(a.dir, c)
	if err != nil {
		return fmt.Errorf("--secrets: %w", err)
	}
	return printSecrets(out, secretsOf(bundles, a.secrets, a.prefix))
}

func (a authFlags) writeFiles(c credentials.Config, w io.Writer) error {
	r, err := credentials.Write(a.dir, c)
	if err != nil {
		return fmt.Errorf("--auth: %w", err)
	}
	fmt.Fprintf(w, "%s: %s made, %d kept; %s says what goes where\n",
		a.dir, command.Count(len(r.Made), "key"), len(r.Kept), filepath.Join(a.dir, credentials.Readme))
	for _, name := range r.Unused {
		fmt.Fprintf(w, "%s: it has no rights any more, since it was not asked for\n", filepath.Join(a.dir, name))
	}
	return nil
}
