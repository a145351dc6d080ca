package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// user is the user of the container: an unknown user with a numeric ID, so clusters can verify that it is not root.
const user = "65532:65532"

// image makes the image of one platform.
func (r request) image(platform v1.Platform) (v1.Image, error) {
	image, origin, err := base(r.base, platform)
	if err != nil {
		return nil, fmt.Errorf("base %s for %s: %w", r.base, platform, err)
	}
	shared, err := r.sharedLayer()
	if err != nil {
		return nil, err
	}
	own, err := r.binaryLayer(platform)
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		layer v1.Layer
		by    string
	}{{shared, "certificates and directories"}, {own, "binaries"}} {
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: l.layer, History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: l.by},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created, config.Author = v1.Time{Time: r.created}, ""
	config.Config.User, config.Config.WorkingDir = user, "/"
	config.Config.Entrypoint, config.Config.Cmd = []string{r.files[0].target}, nil
	config.Config.Env = append(config.Config.Env, r.environment...)
	if config.Config.Labels == nil {
		config.Config.Labels = map[string]string{}
	}
	maps.Copy(config.Config.Labels, r.allLabels(origin))
	return mutate.ConfigFile(image, config)
}

// allLabels returns the labels of each image. Those without a value are left out.
func (r request) allLabels(o origin) map[string]string {
	labels := map[string]string{}
	for _, text := range r.labels {
		name, value, _ := strings.Cut(text, "=")
		labels[name] = value
	}
	for name, value := range map[string]string{
		"title": shortName(r.name), "description": r.title, "version": r.version, "revision": r.revision,
		"source": r.source, "url": r.source, "created": r.created.Format("2006-01-02T15:04:05Z"),
		"base.name": o.name, "base.digest": o.digest,
	} {
		if value != "" {
			labels["org.opencontainers.image."+name] = value
		}
	}
	return labels
}

// sharedLayer has what is the same on all platforms: the certificate authorities of the public web, and the directories.
func (r request) sharedLayer() (v1.Layer, error) {
	entries := []entry{{path: "/etc/ssl/certs/ca-certificates.crt", mode: 0o444, content: roots()}}
	for _, d := range r.directories {
		entries = append(entries, entry{path: d, mode: 0o1777, directory: true})
	}
	return r.layer(entries)
}

// binaryLayer has the files of one platform.
func (r request) binaryLayer(platform v1.Platform) (v1.Layer, error) {
	var entries []entry
	for _, f := range r.files {
		content, err := os.ReadFile(f.of(platform))
		if err != nil {
			return nil, err
		}
		mode := int64(0o555)
		if !strings.Contains(f.source, "{platform}") { // a text, such as the licence
			mode = 0o444
		}
		entries = append(entries, entry{path: f.target, mode: mode, content: content})
	}
	return r.layer(entries)
}

// of returns where the file of one platform is.
func (f file) of(p v1.Platform) string { return strings.ReplaceAll(f.source, "{platform}", dashed(p)) }

// dashed returns the platform in the name of a file.
func dashed(p v1.Platform) string {
	return strings.Join(slices.DeleteFunc([]string{p.OS, p.Architecture, p.Variant}, func(s string) bool { return s == "" }), "-")
}

// shortName returns the last part of the name of an image.
func shortName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
