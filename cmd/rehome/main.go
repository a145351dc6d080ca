// Command rehome is the event-driven descheduler. It runs all roles in one process or a single role, and shows their work.
package main

import (
	"os"

	"github.com/rehome-dev/rehome/cli"
)

func main() { os.Exit(cli.Main()) }
