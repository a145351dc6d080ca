package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// write makes everything and says to w what it made. A layout that is there is replaced.
func (r request) write(w io.Writer) error {
	tag, err := name.NewTag(r.name + ":" + r.version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, text := range r.platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return fmt.Errorf("-platforms: %w", err)
		}
		image, err := r.image(*platform)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		digest, err := r.writeOne(image, tag, *platform)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		fmt.Fprintf(w, "%s %s %s\n", tag, text, digest)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	digest, err := r.writeLayout(index)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s index %s\n", tag, digest)
	return nil
}

// writeOne writes the tar file and the list of contents of one platform.
func (r request) writeOne(image v1.Image, tag name.Tag, platform v1.Platform) (v1.Hash, error) {
	digest, err := image.Digest()
	if err != nil {
		return digest, err
	}
	stem := filepath.Join(r.out, fmt.Sprintf("%s-%s-%s", shortName(r.name), r.version, dashed(platform)))
	if err := tarball.WriteToFile(stem+".tar", tag, image); err != nil {
		return digest, err
	}
	contents, err := r.contents(digest, platform)
	if err != nil {
		return digest, err
	}
	return digest, os.WriteFile(stem+".spdx.json", contents, 0o644)
}

// writeLayout writes the index with all it refers to, under the name that tools look for.
func (r request) writeLayout(index v1.ImageIndex) (v1.Hash, error) {
	digest, err := index.Digest()
	if err != nil {
		return digest, err
	}
	dir := filepath.Join(r.out, "layout")
	if err := os.RemoveAll(dir); err != nil {
		return digest, err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return digest, err
	}
	return digest, path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          r.name + ":" + r.version,
	}))
}
