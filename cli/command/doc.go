// Package command holds what the commands share: flags, arguments, output, and the connection to the bus.
//
//	flags.go    BindFlags, WithSettings   settings from the environment and from flags
//	args.go     NoArguments, PodNamed     arguments
//	connect.go  Connect                   the bus
//	output.go   TableOrJSON               -o table or json
//	text.go     WriteTable, Printable     text for a terminal
package command
