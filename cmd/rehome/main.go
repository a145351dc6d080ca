// Command rehome is the event-driven descheduler: all roles in one process, one role, or a look at what they do.
package main

import (
	"os"

	"github.com/rehome-dev/rehome/cli"
)

func main() { os.Exit(cli.Main()) }
