// Package install holds the commands for setting up an installation: setup, settings, and version.
package install
