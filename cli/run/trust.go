package run

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// authorities are those that the machine trusts and those of a text in PEM, as Knative gives it to the source of events for
// a sink whose certificate is vouched for within the cluster. nil, which means those of the machine alone, if the text is
// empty. What is in the text besides certificates does not matter.
func authorities(text string) (*x509.CertPool, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("authorities of this machine: %w", err)
	}
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("want certificates of authorities in PEM, got none that can be read")
	}
	return pool, nil
}
