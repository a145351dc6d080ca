// Command compose parses a Compose file like `docker compose`, with the variables of the environment, and prints the project as
// JSON. It prints errors and exits with 1.
//
//	compose FILE
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "compose: want one file")
		os.Exit(2)
	}
	text, err := project(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
	fmt.Println(string(text))
}

// project loads, interpolates and validates the file, and resolves its paths.
func project(ctx context.Context, file string) ([]byte, error) {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithOsEnv, cli.WithResolvedPaths(true))
	if err != nil {
		return nil, err
	}
	p, err := options.LoadProject(ctx)
	if err != nil {
		return nil, err
	}
	return p.MarshalJSON()
}
