package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

var (
	dist    = flag.String("dist", "", "folder with a release, which test.sh has built")
	version = flag.String("version", "", "version of that release, with a v")
	key     = flag.String("key", "", "file with the public key of its signature")
)

// TestChecksums requires that SHA256SUMS is signed and contains the sum of every file, and that
// the provenance contains the same sums.
func TestChecksums(t *testing.T) {
	sums := filepath.Join(*dist, "SHA256SUMS")
	output(t, "openssl", "dgst", "-sha256", "-verify", *key, "-signature", sums+".sig", sums)
	text, err := os.ReadFile(sums)
	requireOK(t, err)
	want := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	got := make(map[string]string)
	for _, path := range glob(t, "*") {
		data, err := os.ReadFile(path)
		requireOK(t, err)
		sum := sha256.Sum256(data)
		got[filepath.Base(path)] = hex.EncodeToString(sum[:])
	}
	delete(got, "SHA256SUMS")
	delete(got, "SHA256SUMS.sig")
	if !maps.Equal(got, want) {
		t.Errorf("SHA256SUMS has\n%v\nwant\n%v", want, got)
	}
	provenance := one(t, "*.intoto.json")
	delete(got, filepath.Base(provenance))
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	text, err = os.ReadFile(provenance)
	requireOK(t, err)
	requireOK(t, json.Unmarshal(text, &statement))
	for _, s := range statement.Subject {
		if got[s.Name] != s.Digest["sha256"] {
			t.Errorf("the provenance has %s with %v, want %s", s.Name, s.Digest, got[s.Name])
		}
		delete(got, s.Name)
	}
	if len(got) > 0 {
		t.Errorf("the provenance lacks %v", got)
	}
}

// TestImage requires that the archive of the image contains an index with both architectures.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	output(t, "tar", "--extract", "--directory", dir, "--file", one(t, "*-image.tar"))
	root, err := layout.ImageIndexFromPath(dir)
	requireOK(t, err)
	top, err := root.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("the archive has %v, %v, want one index", top, err)
	}
	index, err := root.ImageIndex(top.Manifests[0].Digest)
	requireOK(t, err)
	manifest, err := index.IndexManifest()
	requireOK(t, err)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("the image is for %q, want %q", platforms, want)
	}
}

// TestDeb installs the package into an empty system, runs the program, and installs it again, which
// keeps the settings. After the removal nothing may be left.
func TestDeb(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/log"} {
		requireOK(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	requireOK(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600))
	dpkg := func(args ...string) {
		t.Helper()
		output(t, "dpkg", append([]string{"--root=" + root, "--log=/dev/null"}, args...)...)
	}
	dpkg("--install", one(t, "*_"+runtime.GOARCH+".deb"))
	requireProgram(t, root)
	changed := []byte("quiet: true\nlisten: 127.0.0.1:9999\n")
	requireOK(t, os.WriteFile(filepath.Join(root, settings), changed, 0o600))
	dpkg("--install", one(t, "*_"+runtime.GOARCH+".deb"))
	if text, err := os.ReadFile(filepath.Join(root, settings)); !slices.Equal(text, changed) {
		t.Errorf("an upgrade has changed the settings: %v\n%s", err, text)
	}
	dpkg("--purge", "pleg-pipeline")
	if left := tree(t, root); len(left) > 0 {
		t.Errorf("left after the removal: %q", left)
	}
}

// TestRPM unpacks the package, which contains the same files as the Debian package.
func TestRPM(t *testing.T) {
	deb, rpm := t.TempDir(), t.TempDir()
	output(t, "dpkg-deb", "--extract", one(t, "*_"+runtime.GOARCH+".deb"), deb)
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	output(t, "sh", "-c", `rpm2cpio "$1" | (cd "$2" && cpio --extract --make-directories --no-absolute-filenames --quiet)`, "sh", one(t, "*."+arch+".rpm"), rpm)
	requireProgram(t, rpm)
	if a, b := tree(t, deb), tree(t, rpm); !slices.Equal(a, b) {
		t.Errorf("the packages differ:\ndeb %q\nrpm %q", a, b)
	}
}

// An upgrade of the RPM keeps the settings, as that of the other package does in TestDeb: rpm2cpio does not show it.
func TestUpgradeOfTheRPM(t *testing.T) {
	text, err := os.ReadFile("nfpm.yaml")
	requireOK(t, err)
	if want := "dst: " + settings + "\n    type: config|noreplace\n"; !strings.Contains(string(text), want) {
		t.Errorf("the packages are of\n%s, want %s", text, want)
	}
}

// settings is the file with the settings of the unit.
const settings = "/etc/pleg-pipeline/pleg-pipeline.yaml"

// requireProgram requires that a tree contains the program of the release, which runs, and that
// systemd finds it there and understands the unit.
func requireProgram(t *testing.T, root string) {
	t.Helper()
	out := output(t, filepath.Join(root, "usr/bin/pleg-pipeline"), "version")
	if !strings.Contains(out, *version) {
		t.Errorf("version %q, want %s", out, *version)
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/pleg-pipeline.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/bin/pleg-pipeline run --config-file "+settings+"\n") {
		t.Errorf("the unit does not start the program: %v\n%s", err, unit)
	}
	installed := filepath.Join(t.TempDir(), "pleg-pipeline.service")
	requireOK(t, os.WriteFile(installed, []byte(strings.ReplaceAll(string(unit), "ExecStart=", "ExecStart="+root)), 0o600))
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", installed).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	printed := output(t, filepath.Join(root, "usr/bin/pleg-pipeline"), "run", "--config-file", filepath.Join(root, settings), "--print-config")
	if !strings.Contains(printed, "\nwait-for-runtime: true # ") {
		t.Errorf("the program does not take its settings:\n%s", printed)
	}
}

// TestSBOM requires that each SBOM lists exactly the modules that the linker has put into
// the program.
func TestSBOM(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		data, err := os.ReadFile(one(t, "*-linux-"+arch+".cdx.json"))
		requireOK(t, err)
		var bom struct {
			BOMFormat, SpecVersion string
			Metadata               struct {
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version, Purl string }
		}
		requireOK(t, json.Unmarshal(data, &bom))
		if bom.BOMFormat != "CycloneDX" || bom.SpecVersion == "" || bom.Metadata.Component.Version != *version {
			t.Errorf("%s: %s %s of version %s, want CycloneDX of %s", arch, bom.BOMFormat, bom.SpecVersion, bom.Metadata.Component.Version, *version)
		}
		var got []string
		for _, c := range bom.Components {
			got = append(got, c.Name+" "+c.Version)
			if c.Name != "std" && !strings.HasPrefix(c.Purl, "pkg:golang/"+c.Name+"@"+c.Version) {
				t.Errorf("%s: %s has the purl %s", arch, c.Name, c.Purl)
			}
		}
		slices.Sort(got)
		if want := modules(t, arch); !slices.Equal(got, want) {
			t.Errorf("%s: the SBOM has\n%q\nthe program has\n%q", arch, got, want)
		}
	}
}

// modules returns the modules of the program in the archive of an architecture, and the
// standard library.
func modules(t *testing.T, arch string) []string {
	t.Helper()
	program := output(t, "tar", "--extract", "--to-stdout", "--file", one(t, "*-linux-"+arch+".tar.gz"), "./pleg-pipeline")
	info, err := buildinfo.Read(strings.NewReader(program))
	requireOK(t, err)
	all := []string{"std " + info.GoVersion}
	for _, m := range info.Deps {
		all = append(all, m.Path+" "+m.Version)
	}
	slices.Sort(all)
	return all
}

func requireOK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(*dist, pattern))
	requireOK(t, err)
	return paths
}

// one returns the only file of the release that matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	paths := glob(t, pattern)
	if len(paths) != 1 {
		t.Fatalf("the release has %q for %s, want one file", paths, pattern)
	}
	return paths[0]
}

// output runs a program and returns its standard output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := process.Output(t.Context(), name, args...)
	requireOK(t, err)
	return out
}

// tree returns the content of a folder except dpkg's own files and empty folders above them.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(root, path)
		if inside == "var" {
			return fs.SkipDir
		}
		if inside != "." {
			paths = append(paths, d.Type().String()+" "+inside)
		}
		return err
	})
	requireOK(t, err)
	return paths
}
