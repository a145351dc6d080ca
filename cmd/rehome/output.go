package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// tableOrJSON lets c show something about the bus: a table for people, or JSON with -o json. The arguments are those that
// c lets through.
func tableOrJSON(c *cobra.Command, show func(c *cobra.Command, s settings, asJSON bool) error) *cobra.Command {
	output := "table"
	s := bindFlags(c)
	c.Flags().StringVarP(&output, "output", "o", output, "table or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if output != "table" && output != "json" {
			return usageError{fmt.Errorf("--output: want table or json, got %q", output)}
		}
		return withSettings(c, s, func(s settings) error { return show(c, s, output == "json") })
	}
	return c
}
