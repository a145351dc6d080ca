package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootsModule is where the certificate authorities come from, whose version go.mod pins.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// roots returns the certificate authorities that Mozilla trusts, as a file in PEM. Those that are trusted only under
// conditions which such a file cannot express are left out.
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
