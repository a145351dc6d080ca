// Command images packs static binaries into OCI images, one per platform with an index, without a container engine. The same
// inputs always give the same bytes: the result does not depend on the clock, the host name, or the user.
//
//	images -name NAME -version VERSION -revision COMMIT -created SECONDS -binary 'bin/{platform}/rehome=/rehome' -out DIR
//
// It writes to DIR: layout, an OCI image layout with the index, and NAME-VERSION-PLATFORM.tar for `docker load`. NAME in file
// names is the last part of the name. With -push, it also pushes the index to the registry in the name.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// request has the arguments.
type request struct {
	name, title, version, revision, source string
	created                                time.Time
	base                                   string
	platforms                              []string
	files                                  []file // the first one is the entrypoint
	directories                            []string
	environment                            []string
	labels                                 []string
	out                                    string
	push                                   bool
}

// file goes from the machine into the image; {platform} in its source stands for such as linux-amd64.
type file struct{ source, target string }

// list collects a flag that is repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

// Set appends a value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func main() {
	r, err := read(os.Args[1:])
	if err == nil {
		err = r.write(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// read reads the command line.
func read(arguments []string) (request, error) {
	var r request
	var files list
	var seconds int64
	var platforms string
	f := flag.NewFlagSet("images", flag.ContinueOnError)
	f.StringVar(&r.name, "name", "", "name of the image, without a tag")
	f.StringVar(&r.title, "title", "", "description in one sentence")
	f.StringVar(&r.version, "version", "", "its tag")
	f.StringVar(&r.revision, "revision", "", "commit that it was built from")
	f.StringVar(&r.source, "source", "", "URL of the repository")
	f.Int64Var(&seconds, "created", 0, "when, in seconds since 1970: the time of the commit, so that it is the same each time")
	f.StringVar(&r.base, "base", "scratch", "scratch, the directory of an OCI layout, or the name of an image with a digest or tag")
	f.StringVar(&platforms, "platforms", "linux/amd64 linux/arm64", "which, divided by blanks")
	f.Var(&files, "binary", "SOURCE=TARGET, where {platform} in SOURCE is such as linux-amd64; the first is the entrypoint")
	f.Var((*list)(&r.directories), "directory", "a world-writable mount point; repeatable")
	f.Var((*list)(&r.environment), "env", "NAME=VALUE; repeatable")
	f.Var((*list)(&r.labels), "label", "NAME=VALUE; repeatable")
	f.StringVar(&r.out, "out", "", "directory to write to")
	f.BoolVar(&r.push, "push", false, "push to the registry, with the credentials of Docker")
	if err := f.Parse(arguments); err != nil {
		return r, err
	}
	for _, text := range files {
		source, target, _ := strings.Cut(text, "=")
		if !strings.HasPrefix(target, "/") {
			return r, fmt.Errorf("-binary: want SOURCE=/TARGET, got %q", text)
		}
		r.files = append(r.files, file{source, target})
	}
	r.created, r.platforms = time.Unix(seconds, 0).UTC(), strings.Fields(platforms)
	if r.name == "" || r.version == "" || r.out == "" || len(r.files) == 0 || len(r.platforms) == 0 || f.NArg() > 0 {
		return r, errors.New("want -name, -version, -out, -platforms and at least one -binary, and nothing else")
	}
	return r, nil
}
