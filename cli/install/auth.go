package install

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/functions"
)

func authCommand() *cobra.Command {
	return cmdutil.Group(&cobra.Command{
		Use: "auth", Short: "Create keys and rights for the participants of an external bus",
	}, authInitCommand(), authSecretsCommand())
}

func authInitCommand() *cobra.Command {
	var a participants
	c := &cobra.Command{
		Use: "init DIRECTORY", Short: "Write keys, rights, and certificates into a directory",
		Long: "Write the files that identify servers and participants, each with minimal rights: a key for each participant, a part\n" +
			"of the server configuration, and a README that says where each file belongs. The command keeps existing keys, so run\n" +
			"it again to add a participant. It needs no bus.",
		Example: "  rehome auth init auth --function KeepOffSpot=functions.keep-off-spot --sender batch --tls nats.nats.svc",
		Args:    cobra.ExactArgs(1),
	}
	a.bind(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		config, err := a.config()
		if err != nil {
			return err
		}
		return writeFiles(args[0], config, c.OutOrStdout())
	}
	return c
}

func authSecretsCommand() *cobra.Command {
	var a participants
	prefix := secretPrefix
	c := &cobra.Command{
		Use: "secrets DIRECTORY", Short: "Write the files of auth init, and print them as Secrets",
		Long: "Write the files of auth init, and print them as Secrets: one for the servers, and one for each participant with its\n" +
			"key. Messages go to standard error. --prefix sets the beginning of their names, for one of several releases of the\n" +
			"chart; the notes of the chart show the command.",
		Example: "  rehome auth secrets auth -n rehome --tls 'rehome-nats.rehome.svc,*.rehome-nats.rehome.svc' |\n" +
			"    kubectl apply --server-side -f -",
		Args: cobra.ExactArgs(1),
	}
	namespaceOf := cmdutil.Settings(c).Namespace()
	a.bind(c)
	c.Flags().StringVar(&prefix, "prefix", prefix, "prefix of the names of the Secrets, such as PREFIX-server")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir := args[0]
		namespace, err := namespaceOf()
		if err != nil {
			return err
		}
		config, err := a.config()
		if err != nil {
			return err
		}
		if err := checkSecrets(dir, namespace, prefix, config); err != nil {
			return err
		}
		if err := writeFiles(dir, config, c.ErrOrStderr()); err != nil {
			return err
		}
		bundles, err := credentials.Bundles(dir, config)
		if err != nil {
			return err
		}
		return printSecrets(c.OutOrStdout(), bundles, namespace, prefix)
	}
	return c
}

// participants has the participants that are not roles, and the hosts of the servers.
type participants struct {
	functions, httpFunctions, senders, forwarders, hosts []string
	busPrefix                                            string
}

func (a *participants) bind(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&a.functions, "function", nil, "NAME=SUBJECT, an external function and its NATS subject; repeatable")
	f.StringArrayVar(&a.httpFunctions, "http-function", nil, "NAME, an external function over HTTP; repeatable")
	f.StringArrayVar(&a.senders, "sender", nil, "NAME, a program that may make requests; repeatable")
	f.StringArrayVar(&a.forwarders, "forwarder", nil, "NAME, a name of rehome forward; repeatable")
	f.StringVar(&a.busPrefix, "bus-prefix", os.Getenv("REHOME_BUS_PREFIX"), "prefix of the streams and subjects (REHOME_BUS_PREFIX)")
	f.StringSliceVar(&a.hosts, "tls", nil, "HOST,..., create certificates for servers with these names or addresses")
}

func (a *participants) config() (credentials.Config, error) {
	c := credentials.Config{
		Hosts: a.hosts, HTTPFunctions: a.httpFunctions, BuiltIn: functions.Names(functions.Hosted()), Prefix: bus.Prefix(a.busPrefix),
	}
	if err := c.Prefix.Check(); err != nil {
		return c, fmt.Errorf("--bus-prefix: %w", err)
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

func writeFiles(dir string, c credentials.Config, w io.Writer) error {
	r, err := credentials.Write(dir, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %s created, %d kept; %s says where each file belongs\n",
		dir, cmdutil.Count(len(r.Made), "key"), len(r.Kept), filepath.Join(dir, credentials.Readme))
	for _, name := range r.Unused {
		fmt.Fprintf(w, "%s: unused; this participant has no rights any more\n", filepath.Join(dir, name))
	}
	return nil
}
