package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// The parts of an OCI layout that these tests look at.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int64             `json:"size"`
		Annotations map[string]string `json:"annotations"`
		Platform    *struct{ OS, Architecture string }
	}
	index struct {
		MediaType string       `json:"mediaType"`
		Manifests []descriptor `json:"manifests"`
	}
	manifest struct {
		MediaType string       `json:"mediaType"`
		Config    descriptor   `json:"config"`
		Layers    []descriptor `json:"layers"`
	}
	imageConfig struct {
		Architecture, OS, Created string
		Config                    struct {
			User, WorkingDir     string
			Entrypoint, Cmd, Env []string
			Labels               map[string]string
		}
	}
)

// blob reads what the digest names in a layout, and checks that it is that.
func blob(t *testing.T, layout, digest string) []byte {
	t.Helper()
	algorithm, name, _ := strings.Cut(digest, ":")
	text, err := os.ReadFile(filepath.Join(layout, "blobs", algorithm, name))
	expect.Must(t, err)
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != name {
		t.Fatalf("%s is not what its name says", digest)
	}
	return text
}

func decode[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return v
}

// platforms returns the images in a layout, by platform.
func platforms(t *testing.T, layout string) map[string]manifest {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(layout, "index.json"))
	expect.Must(t, err)
	top := decode[index](t, text)
	if len(top.Manifests) != 1 {
		t.Fatalf("want one index in the layout, got %s", text)
	}
	want := map[string]string{"org.opencontainers.image.ref.name": version, "io.containerd.image.name": "ghcr.io/rehome-dev/rehome:" + version}
	if got := top.Manifests[0].Annotations; !reflect.DeepEqual(got, want) {
		t.Errorf("the index is called %v, want %v", got, want)
	}
	all := map[string]manifest{}
	for _, d := range decode[index](t, blob(t, layout, top.Manifests[0].Digest)).Manifests {
		all[d.Platform.OS+"/"+d.Platform.Architecture] = decode[manifest](t, blob(t, layout, d.Digest))
	}
	return all
}

// unpacked returns a line for each entry of a layer, and the files.
func unpacked(t *testing.T, layer []byte) (lines []string, files map[string][]byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(layer))
	expect.Must(t, err)
	files = map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, files
		}
		expect.Must(t, err)
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%04o %d:%d %d %s", h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), h.Name))
	}
}

func TestImageContents(t *testing.T) {
	dir, _ := built(t)
	layout := filepath.Join(dir, "layout")
	images := platforms(t, layout)
	for _, c := range []struct {
		platform string
		machine  elf.Machine
	}{{"linux/amd64", elf.EM_X86_64}, {"linux/arm64", elf.EM_AARCH64}} {
		t.Run(strings.ReplaceAll(c.platform, "/", " on "), func(t *testing.T) {
			m := images[c.platform]
			var all []string
			files := map[string][]byte{}
			for _, l := range m.Layers {
				lines, of := unpacked(t, blob(t, layout, l.Digest))
				all = append(all, lines...)
				maps.Copy(files, of)
			}
			want := []string{
				"0755 0:0 1700000000 etc/", "0755 0:0 1700000000 etc/rehome/", "1777 0:0 1700000000 etc/rehome/nats/",
				"0755 0:0 1700000000 etc/ssl/", "0755 0:0 1700000000 etc/ssl/certs/",
				"0444 0:0 1700000000 etc/ssl/certs/ca-certificates.crt",
				"0755 0:0 1700000000 var/", "0755 0:0 1700000000 var/lib/", "1777 0:0 1700000000 var/lib/rehome/",
				"0444 0:0 1700000000 LICENSE", "0555 0:0 1700000000 rehome",
			}
			if !slices.Equal(all, want) {
				t.Errorf("got  %q\nwant %q", all, want)
			}
			checkStatic(t, files["rehome"], c.machine)
			checkRoots(t, files["etc/ssl/certs/ca-certificates.crt"])
			checkConfig(t, decode[imageConfig](t, blob(t, layout, m.Config.Digest)), c.platform)
		})
	}
	if len(images) != 2 {
		t.Errorf("there are %d platforms, want 2", len(images))
	}
}

// checkStatic checks that nothing else is needed to run the program on such a machine.
func checkStatic(t *testing.T, program []byte, machine elf.Machine) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(program))
	expect.Must(t, err)
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a %v, so it is not static", p.Type)
		}
	}
	if f.Machine != machine {
		t.Errorf("it is for %v, want %v", f.Machine, machine)
	}
}

// checkRoots checks that programs find public certificate authorities such as Let's Encrypt.
func checkRoots(t *testing.T, text []byte) {
	t.Helper()
	var names []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		expect.Must(t, err)
		if !c.IsCA {
			t.Errorf("%s is no authority", c.Subject)
		}
		names = append(names, c.Subject.CommonName)
	}
	if len(names) < 80 || !slices.Contains(names, "ISRG Root X1") {
		t.Errorf("got %d authorities: %q", len(names), names)
	}
}

func checkConfig(t *testing.T, got imageConfig, platform string) {
	t.Helper()
	want := imageConfig{Created: "2023-11-14T22:13:20Z"}
	want.OS, want.Architecture, _ = strings.Cut(platform, "/")
	want.Config.User, want.Config.WorkingDir, want.Config.Entrypoint = "65532:65532", "/", []string{"/rehome"}
	want.Config.Env = []string{"REHOME_STORE_DIR=/var/lib/rehome"}
	want.Config.Labels = map[string]string{
		"org.opencontainers.image.title":       "rehome",
		"org.opencontainers.image.description": "An event-driven descheduler for Kubernetes",
		"org.opencontainers.image.version":     version, "org.opencontainers.image.revision": revision,
		"org.opencontainers.image.source":   "https://github.com/rehome-dev/rehome",
		"org.opencontainers.image.url":      "https://github.com/rehome-dev/rehome",
		"org.opencontainers.image.created":  "2023-11-14T22:13:20Z",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestImageVersion(t *testing.T) {
	dir, _ := built(t)
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "linux-"+runtime.GOARCH, "rehome"), "version").CombinedOutput()
	want := fmt.Sprintf("rehome %s\ncommit %s\n%s linux/%s\n", version, revision, runtime.Version(), runtime.GOARCH)
	if err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

func TestTarFileImage(t *testing.T) {
	dir, said := built(t)
	images := platforms(t, filepath.Join(dir, "layout"))
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		f, err := os.Open(filepath.Join(dir, "rehome-"+version+"-"+strings.ReplaceAll(platform, "/", "-")+".tar"))
		expect.Must(t, err)
		var got []struct {
			Config   string
			RepoTags []string
			Layers   []string
		}
		for r := tar.NewReader(f); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			if h.Name == "manifest.json" {
				if err := json.NewDecoder(r).Decode(&got); err != nil {
					t.Error(err)
				}
			}
		}
		f.Close()
		if len(got) != 1 || got[0].Config != images[platform].Config.Digest || len(got[0].Layers) != 2 ||
			!slices.Equal(got[0].RepoTags, []string{"ghcr.io/rehome-dev/rehome:" + version}) {
			t.Errorf("%s: got %+v, want the image with %s", platform, got, images[platform].Config.Digest)
		}
		if !strings.Contains(said, "ghcr.io/rehome-dev/rehome:"+version+" "+platform+" sha256:") {
			t.Errorf("make does not say the digest for %s:\n%s", platform, said)
		}
	}
}

func TestImageBase(t *testing.T) {
	dir, _ := built(t)
	base, out := filepath.Join(dir, "layout"), t.TempDir()
	if err := os.CopyFS(filepath.Join(out, "bin"), os.DirFS(filepath.Join(dir, "bin"))); err != nil { // reuse the binaries
		t.Fatal(err)
	}
	said, err := runMake(repository(t), imageArguments(repository(t), out, "BASE="+base, "PLATFORMS=linux/"+runtime.GOARCH)...)
	expect.Must(t, err)
	below, got := platforms(t, base), platforms(t, filepath.Join(out, "layout"))
	platform := "linux/" + runtime.GOARCH
	if len(got) != 1 || len(got[platform].Layers) != 4 || !reflect.DeepEqual(got[platform].Layers[:2], below[platform].Layers) {
		t.Errorf("got %+v on top of %+v\n%s", got, below, said)
	}
	none := imageArguments(repository(t), out, "BASE=127.0.0.1:1/none:v1", "PLATFORMS="+platform)
	if _, err := runMake(repository(t), none...); err == nil || !strings.Contains(err.Error(), "base 127.0.0.1:1/none:v1 for "+platform) {
		t.Errorf("on a missing base: %v", err)
	}
	labels := decode[imageConfig](t, blob(t, filepath.Join(out, "layout"), got[platform].Config.Digest)).Config.Labels
	if labels["org.opencontainers.image.base.name"] != base || !strings.HasPrefix(labels["org.opencontainers.image.base.digest"], "sha256:") {
		t.Errorf("the labels do not say on what: %v", labels)
	}
}
