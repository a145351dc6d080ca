package bus

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Data above compressAbove is sent compressed, with the header Content-Encoding: gzip. Scopes of large groups are far
// above it and shrink to about a tenth, since pods are alike; NATS takes messages of at most 1 MiB by default.
const compressAbove = 256 << 10

// mostData bounds what compressed data may come to, so that a few bytes cannot ask for all memory, and mostRequest what that
// of a request may, which anybody sends and which needs no more than the message may have uncompressed.
const (
	mostData    = 64 << 20
	mostRequest = 1 << 20
)

const (
	encodingHeader = "Content-Encoding"
	gzipEncoding   = "gzip"
)

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decompress reads data that was sent with an encoding; empty: as it is. It comes to at most so many bytes.
func decompress(encoding string, data []byte, most int) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return data, nil
	case gzipEncoding:
	default:
		return nil, fmt.Errorf("content encoding %q is not known, want %s", encoding, gzipEncoding)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("data is not compressed with %s: %w", gzipEncoding, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("data is not compressed with %s: %w", gzipEncoding, err)
	}
	if len(plain) > most {
		return nil, fmt.Errorf("compressed data comes to more than %d MiB", most>>20)
	}
	return plain, nil
}
