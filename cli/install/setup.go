// Package install has the commands that prepare an installation.
//
//	setup.go     setup: streams and consumers of an external bus
//	auth.go      auth init, auth secrets: keys and rights; secrets.go turns them into Secrets
//	settings.go  settings, version
package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/policy"
)

// Commands are the commands that prepare an installation.
func Commands() []*cobra.Command {
	return []*cobra.Command{setupCommand(), authCommand(), settingsCommand(), versionCommand()}
}

func setupCommand() *cobra.Command {
	timeout, takeOver := 30*time.Second, false
	c := &cobra.Command{
		Use: "setup", Short: "Create or update the streams and consumers of an external bus, once", Args: cobra.NoArgs,
		Long: "Create or update the streams and consumers of an external bus, once. With a policy, the command also creates the\n" +
			"consumers of the strategies under `functions`; run it again when these strategies change.\n\n" +
			"Streams belong to one installation in one cluster, and roles of other installations refuse them. With a kubeconfig,\n" +
			"or in a pod, this command reads the identity of the cluster and writes it to the streams. Otherwise the first role\n" +
			"that may update streams does this.",
		Example: "  REHOME_NATS_URL=nats://nats:4222 REHOME_NATS_REPLICAS=3 rehome setup\n\n" +
			"  # For a policy with external strategies:\n" +
			"  REHOME_NATS_URL=nats://nats:4222 rehome setup --policy policy.yaml",
	}
	f := cmdutil.Settings(c).Policy().Cluster().NATS()
	c.Flags().DurationVar(&timeout, "timeout", timeout, "time limit")
	c.Flags().BoolVar(&takeOver, "take-over", false, "take over the streams of another installation that no longer exists")
	c.RunE = func(c *cobra.Command, _ []string) error { return setUpBus(c, f.Settings, timeout, takeOver) }
	return c
}

func setUpBus(c *cobra.Command, s settings.Settings, timeout time.Duration, takeOver bool) error {
	if s.NATSURL == "" {
		return fmt.Errorf("no bus: set REHOME_NATS_URL or --nats-url; `rehome run` sets up its own")
	}
	var p policy.Policy
	if s.Policy != "" {
		var err error
		if p, _, err = settings.ReadPolicy(s.Policy); err != nil {
			return err
		}
	}
	setup := settings.SetupOf(s, p)
	setup.TakeOver = takeOver
	return cmdutil.WithBus(s, cmdutil.Setup, func(b *bus.Bus) error {
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		for {
			installation, err := identify(ctx, s)
			if noCluster := err; err != nil && s.OwnNamespace() == "" && !takeOver {
				installation, err = bus.Installation{Name: s.Installation}, nil
				fmt.Fprintln(c.ErrOrStderr(), "cannot identify the cluster; the first role that may update streams will do it:", noCluster)
			}
			if err == nil {
				b.Identify(installation)
				err = b.Setup(ctx, setup)
			}
			if err == nil {
				fmt.Fprintln(c.ErrOrStderr(), "installation:", installation)
				fmt.Fprintln(c.OutOrStdout(), "bus is set up")
				return nil
			}
			if errors.Is(err, bus.ErrOtherInstallation) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Second):
				fmt.Fprintln(c.ErrOrStderr(), "trying again:", err)
			}
		}
	})
}

func identify(ctx context.Context, s settings.Settings) (bus.Installation, error) {
	client, err := settings.NewClient(s)
	if err != nil {
		return bus.Installation{}, err
	}
	return settings.ReadInstallation(ctx, s, client)
}
