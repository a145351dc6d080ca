package command

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
)

// TableOrJSON lets c show something about the bus: a table for people, or JSON with -o json. The arguments are those that
// c lets through.
func TableOrJSON(c *cobra.Command, show func(c *cobra.Command, s settings.Settings, asJSON bool) error) *cobra.Command {
	output := "table"
	s := BindFlags(c)
	c.Flags().StringVarP(&output, "output", "o", output, "table or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if output != "table" && output != "json" {
			return usage.Errorf("--output: want table or json, got %q", output)
		}
		return WithSettings(c, s, func(s settings.Settings) error { return show(c, s, output == "json") })
	}
	return c
}
