package main

import (
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// origin is what labels say about the base. Empty means there is none.
type origin struct{ name, digest string }

// base finds what an image begins with.
func base(text string, platform v1.Platform) (v1.Image, origin, error) {
	if text == "scratch" {
		image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
		return mutate.ConfigMediaType(image, types.OCIConfigJSON), origin{}, nil
	}
	var image v1.Image
	var err error
	if info, statErr := os.Stat(text); statErr == nil && info.IsDir() {
		image, err = fromLayout(text, platform)
	} else {
		image, err = fromRegistry(text, platform)
	}
	if err != nil {
		return nil, origin{}, err
	}
	digest, err := image.Digest()
	return image, origin{text, digest.String()}, err
}

// fromRegistry asks the registry in the name, with the credentials that docker login has left.
func fromRegistry(text string, platform v1.Platform) (v1.Image, error) {
	reference, err := name.ParseReference(text)
	if err != nil {
		return nil, err
	}
	return remote.Image(reference, remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// fromLayout takes the image of the platform out of a directory, through indexes of indexes.
func fromLayout(dir string, platform v1.Platform) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	return fromIndex(index, platform)
}

func fromIndex(index v1.ImageIndex, platform v1.Platform) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() {
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			if image, err := fromIndex(inner, platform); err == nil {
				return image, nil
			}
		}
		if d.MediaType.IsImage() && d.Platform != nil && d.Platform.Satisfies(platform) {
			return index.Image(d.Digest)
		}
	}
	return nil, fmt.Errorf("there is no image for %s", platform)
}
