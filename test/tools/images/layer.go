package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entry is a file or a directory in a layer, owned by root.
type entry struct {
	path      string
	mode      int64
	content   []byte
	directory bool
}

// layer packs the entries, with the directories above them, in the order of their paths.
func (r request) layer(entries []entry) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range withParents(entries) {
		h := &tar.Header{
			Name: strings.TrimPrefix(e.path, "/"), Mode: e.mode, Size: int64(len(e.content)), ModTime: r.created,
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if e.directory {
			h.Name, h.Typeflag = h.Name+"/", tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", e.path, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("%s: %w", e.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// withParents adds the directories that are needed, and sorts.
func withParents(entries []entry) []entry {
	all := map[string]entry{}
	for _, e := range entries {
		for d := path.Dir(e.path); d != "/"; d = path.Dir(d) {
			if _, ok := all[d]; !ok {
				all[d] = entry{path: d, mode: 0o755, directory: true}
			}
		}
		all[e.path] = e
	}
	var sorted []entry
	for _, e := range all {
		sorted = append(sorted, e)
	}
	slices.SortFunc(sorted, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return sorted
}
