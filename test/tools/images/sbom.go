package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The parts of a document of SPDX 2.3 that are used here.
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []pkg          `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	pkg struct {
		ID         string      `json:"SPDXID"`
		Name       string      `json:"name"`
		Version    string      `json:"versionInfo"`
		Location   string      `json:"downloadLocation"`
		Analyzed   bool        `json:"filesAnalyzed"`
		Concluded  string      `json:"licenseConcluded"`
		Declared   string      `json:"licenseDeclared"`
		Copyright  string      `json:"copyrightText"`
		Purpose    string      `json:"primaryPackagePurpose,omitempty"`
		Checksums  []checksum  `json:"checksums,omitempty"`
		References []reference `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// contents lists what is in the image: each binary, every Go module that is linked into it with the sum that the Go
// checksum database knows, the Go standard library, and the certificate authorities.
func (r request) contents(image v1.Hash, platform v1.Platform) ([]byte, error) {
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: r.name + ":" + r.version,
		Namespace: fmt.Sprintf("%s/spdx/%s-%s-%s", r.source, shortName(r.name), dashed(platform), image.Hex),
		Creation: creation{
			Created: r.created.Format("2006-01-02T15:04:05Z"), Creators: []string{"Tool: " + shortName(r.name) + "-images"},
		},
	}
	root := d.add("DESCRIBES", d.ID, pkg{
		Name: r.name, Version: r.version, Purpose: "CONTAINER", Checksums: []checksum{{"SHA256", image.Hex}},
	})
	for _, f := range r.files {
		if !strings.Contains(f.source, "{platform}") {
			continue
		}
		if err := d.addBinary(root, f, platform, r.version); err != nil {
			return nil, err
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == rootsModule {
				d.addModule(root, m)
			}
		}
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// add adds a package that another one has to do with, and returns its name in the document.
func (d *document) add(as, of string, p pkg) string {
	p.ID = fmt.Sprintf("SPDXRef-Package-%d", len(d.Packages)+1)
	p.Concluded, p.Declared, p.Copyright = "NOASSERTION", "NOASSERTION", "NOASSERTION"
	if p.Location == "" {
		p.Location = "NOASSERTION"
	}
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, relationship{of, as, p.ID})
	return p.ID
}

func (d *document) addBinary(image string, f file, platform v1.Platform, version string) error {
	path := f.of(platform)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read modules of %s: %w", path, err)
	}
	sum := sha256.Sum256(content)
	if info.Main.Version != "" && info.Main.Version != "(devel)" && info.Main.Sum != "" { // not built from a work tree
		version = info.Main.Version
	}
	binary := d.add("CONTAINS", image, pkg{
		Name: info.Path, Version: version, Purpose: "APPLICATION",
		Checksums: []checksum{{"SHA256", hex.EncodeToString(sum[:])}}, References: golang(info.Path, version),
	})
	d.add("DEPENDS_ON", binary, pkg{
		Name: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go"), Purpose: "LIBRARY",
		References: golang("stdlib", strings.TrimPrefix(info.GoVersion, "go")),
	})
	for _, m := range info.Deps {
		d.addModule(binary, m)
	}
	return nil
}

// addModule adds a linked module, or its replacement.
func (d *document) addModule(of string, m *debug.Module) {
	if m.Replace != nil {
		m = m.Replace
	}
	p := pkg{Name: m.Path, Version: m.Version, Purpose: "LIBRARY", References: golang(m.Path, m.Version)}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		p.Checksums = []checksum{{"SHA256", hex.EncodeToString(sum)}}
	}
	d.add("DEPENDS_ON", of, p)
}

// golang returns what scanners look a package up by.
func golang(path, version string) []reference {
	return []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}}
}
