package release

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// file returns the path of a file in the folder of the archives.
func (s *snapshot) file(name string) string { return filepath.Join(s.root, ".build/release", name) }

// archive returns the name of the archive of a platform.
func (s *snapshot) archive(platform, ending string) string {
	return "rehome-" + s.version + "-" + platform + ending
}

// sums returns the checksums in SHA256SUMS, by file name.
func (s *snapshot) sums(t *testing.T) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for line := range strings.Lines(filetest.Read(t, s.file("SHA256SUMS"))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	return sums
}

// testArchives compares the members of each archive, with their owners and times, which are the same in each build of a commit.
func (s *snapshot) testArchives(t *testing.T) {
	at := strings.TrimSpace(s.run(t, "git", "log", "-1", "--format=%ct"))
	want, got := map[string]string{}, s.sums(t)
	for file, name := range map[string]string{"policy/policy.schema.json": "policy.schema.json", "docs/cli.schema.json": "cli.schema.json"} {
		want[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(filetest.Read(t, filepath.Join(s.root, file)))))
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64", "windows-arm64"} {
		ending, program := ".tar.gz", "rehome"
		if strings.HasPrefix(platform, "windows") {
			ending, program = ".zip", "rehome.exe"
		}
		name := s.archive(platform, ending)
		for _, file := range []string{name, name + ".sbom.json"} {
			want[file] = fmt.Sprintf("%x", sha256.Sum256([]byte(filetest.Read(t, s.file(file)))))
		}
		var inside []string
		for _, m := range members(t, s.file(name)) {
			inside = append(inside, strings.ReplaceAll(m, " "+at, ""))
		}
		slices.Sort(inside)
		if files := []string{"LICENSE root", "kubectl_complete-rehome root", program + " root"}; !slices.Equal(inside, files) {
			t.Errorf("%s: got %q, want %q at %s", name, inside, files, at)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("SHA256SUMS: got %v, want %v", got, want)
	}
}

// members returns the name, owner, and time of each file in an archive. A zip file has no owners.
func members(t *testing.T, file string) (names []string) {
	t.Helper()
	if strings.HasSuffix(file, ".zip") {
		z, err := zip.OpenReader(file)
		expect.Must(t, err)
		defer z.Close()
		for _, f := range z.File {
			names = append(names, fmt.Sprint(f.Name, " root ", f.Modified.Unix()))
		}
		return names
	}
	f, err := os.Open(file)
	expect.Must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	expect.Must(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		expect.Must(t, err)
		names = append(names, fmt.Sprint(h.Name, " ", h.Uname, " ", h.ModTime.Unix()))
	}
}

// testManifests compares the checksums in the manifests with the archives.
func (s *snapshot) testManifests(t *testing.T) {
	const download = `https://github.com/rehome-dev/rehome/releases/download/`
	for file, want := range map[string]int{"krew/rehome.yaml": 6, "homebrew/Casks/rehome.rb": 4} {
		text := strings.ReplaceAll(filetest.Read(t, s.file(file)), "#{version}", strings.TrimPrefix(s.version, "v"))
		urls := regexp.MustCompile(download+`[^/"]+/([^"\s]+)`).FindAllStringSubmatch(text, -1)
		hashes := regexp.MustCompile(`sha256:? "?([0-9a-f]{64})`).FindAllStringSubmatch(text, -1)
		if len(urls) != want || len(hashes) != want {
			t.Fatalf("%s: got %d archives and %d checksums, want %d\n%s", file, len(urls), len(hashes), want, text)
		}
		sums := s.sums(t)
		seen := map[string]bool{}
		for _, u := range urls {
			seen[sums[u[1]]] = true
		}
		for _, h := range hashes {
			if !seen[h[1]] {
				t.Errorf("%s: %s is the checksum of no archive in it", file, h[1])
			}
		}
	}
}

func (s *snapshot) testKrew(t *testing.T) {
	s.run(t, "krew", "install", "--manifest="+s.file("krew/rehome.yaml"),
		"--archive="+s.file(s.archive(runtime.GOOS+"-"+runtime.GOARCH, ".tar.gz")))
	got := s.run(t, "kubectl", "rehome", "version")
	want := fmt.Sprintf("rehome %s\ncommit %s\n%s %s/%s\n", s.version, s.commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// testSignatures runs the commands of the page. They must fail with another key and with other content.
func (s *snapshot) testSignatures(t *testing.T) {
	s.page(t, "Verify a release")
	other := filepath.Join(t.TempDir(), "other")
	s.run(t, "cosign", "generate-key-pair", "--output-key-prefix", other)
	if _, err := s.try(t, "cosign", "verify", "--insecure-ignore-tlog", "--key", other+".pub", s.registry+"/rehome:"+s.version); err == nil {
		t.Error("the image passes with another key")
	}
	changed := filetest.New(t, "SHA256SUMS", filetest.Read(t, s.file("SHA256SUMS"))+"0  other\n")
	if _, err := s.try(t, "cosign", "verify-blob", "--insecure-ignore-tlog", "--key", filepath.Join(s.root, ".build/release-key.pub"),
		"--bundle", s.file("SHA256SUMS.sigstore.json"), changed); err == nil {
		t.Error("a changed list of checksums passes")
	}
}

// attested verifies an attestation in the registry, and returns its predicate.
func (s *snapshot) attested(t *testing.T, kind, reference string) []byte {
	t.Helper()
	out := s.run(t, "cosign", "verify-attestation", "--insecure-ignore-tlog", "--key", filepath.Join(s.root, ".build/release-key.pub"),
		"--type", kind, reference)
	var envelope struct{ Payload string }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&envelope); err != nil {
		t.Fatalf("%s of %s: %v\n%.300s", kind, reference, err, out)
	}
	text, err := base64.StdEncoding.DecodeString(envelope.Payload)
	var statement struct{ Predicate json.RawMessage }
	if err = errors.Join(err, json.Unmarshal(text, &statement)); err != nil {
		t.Fatalf("%s of %s: %v\n%.300s", kind, reference, err, text)
	}
	return statement.Predicate
}

func (s *snapshot) testProvenance(t *testing.T) {
	type provenance struct {
		BuildDefinition struct {
			ResolvedDependencies []struct {
				URI    string
				Digest map[string]string
			}
		}
	}
	chart := strings.TrimPrefix(s.version, "v")
	for _, reference := range []string{"/rehome:" + s.version, "/charts/rehome:" + chart, "/charts/rehome-crds:" + chart} {
		got := expect.FromJSON[provenance](t, s.attested(t, "slsaprovenance1", s.registry+reference))
		sources := got.BuildDefinition.ResolvedDependencies
		if len(sources) != 1 || sources[0].URI != "git+https://github.com/rehome-dev/rehome" || sources[0].Digest["gitCommit"] != s.commit {
			t.Errorf("%s: got %v, want commit %s", reference, sources, s.commit)
		}
	}
}

// testMaterials compares the bills of materials with the modules in the programs.
func (s *snapshot) testMaterials(t *testing.T) {
	for platform, digest := range s.digests(t) {
		info, err := buildinfo.ReadFile(filepath.Join(s.root, ".build/release-work/bin", platform, "rehome"))
		expect.Must(t, err)
		for name, text := range map[string][]byte{
			"image":   s.attested(t, "spdxjson", s.registry+"/rehome@"+digest),
			"archive": []byte(filetest.Read(t, s.file(s.archive(platform, ".tar.gz.sbom.json")))),
		} {
			var bill struct {
				Packages []struct{ Name, VersionInfo string }
			}
			if err := json.Unmarshal(text, &bill); err != nil {
				t.Fatal(err)
			}
			listed := map[string]bool{}
			for _, p := range bill.Packages {
				listed[p.Name+" "+p.VersionInfo] = true
			}
			want := []string{"stdlib " + info.GoVersion}
			for _, m := range info.Deps {
				want = append(want, m.Path+" "+m.Version)
			}
			for _, module := range want {
				if !listed[module] {
					t.Errorf("%s for %s: %s is missing", name, platform, module)
				}
			}
		}
	}
}

// digests returns the digest of the image for each platform.
func (s *snapshot) digests(t *testing.T) map[string]string {
	t.Helper()
	var index struct {
		Manifests []struct {
			Digest   string
			Platform struct{ OS, Architecture string }
		}
	}
	text, _ := s.manifest(t, s.version)
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	digests := map[string]string{}
	for _, m := range index.Manifests {
		digests[m.Platform.OS+"-"+m.Platform.Architecture] = m.Digest
	}
	if len(digests) != 2 {
		t.Fatalf("the image has the platforms %v, want two", digests)
	}
	return digests
}

// manifest returns a manifest of the image from the registry, and its digest.
func (s *snapshot) manifest(t *testing.T, reference string) (text []byte, digest string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.registry+"/v2/rehome/manifests/"+reference, nil)
	expect.Must(t, err)
	request.Header.Set("Accept", "application/vnd.oci.image.index.v1+json")
	answer, err := http.DefaultClient.Do(request)
	expect.Must(t, err)
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("manifest %s: %s %s %v", reference, answer.Status, text, err)
	}
	return text, answer.Header.Get("Docker-Content-Digest")
}

// testHelm installs both charts from the registry. The simulated nodes pull no image, so the test asks the registry for it.
func (s *snapshot) testHelm(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	if _, err := c.AddNodes(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for _, chart := range []string{"rehome-crds", "rehome"} {
		s.run(t, "helm", "install", chart, "oci://"+s.registry+"/charts/"+chart, "--plain-http", "--version", strings.TrimPrefix(s.version, "v"),
			"--namespace", "rehome", "--create-namespace", "--wait", "--timeout", "2m", "--kubeconfig", c.Kubeconfig())
	}
	d, err := c.Client().AppsV1().Deployments("rehome").Get(t.Context(), "rehome", metav1.GetOptions{})
	expect.Must(t, err)
	_, digest := s.manifest(t, s.version)
	if got, want := d.Spec.Template.Spec.Containers[0].Image, s.registry+"/rehome@"+digest; got != want || d.Status.ReadyReplicas != 1 {
		t.Errorf("got image %s with %d ready replicas, want %s with one", got, d.Status.ReadyReplicas, want)
	}
}
