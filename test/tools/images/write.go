package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
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
		file := fmt.Sprintf("%s-%s-%s.tar", shortName(r.name), r.version, dashed(*platform))
		if err := tarball.WriteToFile(filepath.Join(r.out, file), tag, image); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		digest, err := image.Digest()
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
	if r.push {
		if err := remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push: %w", err)
		}
	}
	fmt.Fprintf(w, "%s index %s\n", tag, digest)
	return nil
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
