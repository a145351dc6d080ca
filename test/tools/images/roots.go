package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// roots returns the certificate authorities that Mozilla trusts, as a file in PEM. It omits authorities that Mozilla trusts
// only under conditions, because the file cannot express them.
func roots() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint != nil {
			continue
		}
		if c, err := x509.ParseCertificate(r.Certificate); err == nil {
			fmt.Fprintf(&b, "# %s\n", c.Subject)
		}
		// Encode fails only for headers and writers. There are no headers, and the writer is memory.
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate})
	}
	return b.Bytes()
}
