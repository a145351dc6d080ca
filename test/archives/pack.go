package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"time"
)

// member is a file of an archive.
type member struct {
	name, source string
	mode         fs.FileMode
}

// writeTar writes a compressed tar file without users, with the time of the commit.
func writeTar(w io.Writer, members []member, at time.Time) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, m := range members {
		text, err := os.ReadFile(m.source)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name: m.name, Mode: int64(m.mode), Size: int64(len(text)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(text); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// writeZip writes a zip file with the same content.
func writeZip(w io.Writer, members []member, at time.Time) error {
	z := zip.NewWriter(w)
	for _, m := range members {
		text, err := os.ReadFile(m.source)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: at}
		header.SetMode(m.mode)
		f, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
	}
	return z.Close()
}
