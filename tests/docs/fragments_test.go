package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var (
	fragment = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	literal  = regexp.MustCompile(`"[^"]*"`)
	assigned = regexp.MustCompile(`(?m)^([a-z]\w*)(?:, ([a-z]\w*))? := `)
	packages = map[string]string{
		"cri": "cri", "client": "client", "server": "server", "plegtest": "plegtest", "cache": "cache", "lookup": "lookup",
	}
)

// around gives a fragment the names that the text before it introduces.
const around = `package fragments

import (
%s)

func _(%s) error {
%s
%sreturn nil
}
`

// names are identifiers that fragments use without a declaration.
var names = []struct{ name, is, uses string }{
	{"ctx", "context.Context", "context"},
	{"pipe", "*pipeline.Pipeline", ""},
	{"log", "*slog.Logger", "log/slog"},
	{"pods", "map[pleg.PodUID]*pleg.PodStatus", "github.com/pleg-pipeline/pleg-pipeline/pleg"},
	{"uid", "pleg.PodUID", ""},
	{"use", "func(any)", ""},
}

// TestFragmentsCompile builds the Go fragments of the pages, each as the body of a function.
// Other tests cover full programs, a change to the kubelet's own source, and the nested module
// fleet.
func TestFragmentsCompile(t *testing.T) {
	dir := t.TempDir()
	var sources []string
	for path, text := range files(t, ".md") {
		if folder := filepath.Base(filepath.Dir(path)); folder != ".." && folder != "docs" {
			continue
		}
		for n, m := range fragment.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "package ") || strings.Contains(m[1], "klet.") || strings.Contains(m[1], "fleet.") {
				continue
			}
			source := filepath.Join(dir, fmt.Sprintf("%s-%d.go", filepath.Base(path), n+1))
			kit.Must(t, os.WriteFile(source, []byte(wrapped(m[1])), 0o600))
			sources = append(sources, source)
		}
	}
	build(t, os.DevNull, sources...)
}

// build builds sources. It uses the race detector if this test does: then most packages are
// compiled already.
func build(t *testing.T, to string, sources ...string) {
	t.Helper()
	args := []string{"build", "-o", to}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	if output, err := exec.CommandContext(t.Context(), "go", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// wrapped returns the source of a file with a fragment.
func wrapped(code string) string {
	plain := literal.ReplaceAllString(code, "")
	const module = "github.com/pleg-pipeline/pleg-pipeline"
	imports := []string{fmt.Sprintf("\tpipeline %q\n", module), "\t\"errors\"\n", "\t\"time\"\n", "\t\"fmt\"\n"}
	for name, folder := range packages {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(plain) {
			imports = append(imports, fmt.Sprintf("\t%q\n", module+"/"+folder))
		}
	}
	var parameters []string
	for _, n := range names {
		if !regexp.MustCompile(`(?m)^(?:\w+, )?` + n.name + `(?:, \w+)? := `).MatchString(code) {
			parameters = append(parameters, n.name+" "+n.is)
		}
		if n.uses != "" {
			imports = append(imports, fmt.Sprintf("\t%q\n", n.uses))
		}
	}
	var used strings.Builder
	for _, m := range assigned.FindAllStringSubmatch(code, -1) {
		for _, name := range m[1:] {
			if name != "" {
				fmt.Fprintf(&used, "\t_ = %s\n", name)
			}
		}
	}
	slices.Sort(imports)
	source := fmt.Sprintf(around, strings.Join(imports, ""), strings.Join(parameters, ", "), code, used.String())
	return source + "\nvar (\n\t_ = errors.New\n\t_ = time.Now\n\t_ = fmt.Sprint\n\t_ context.Context\n\t_ slog.Logger\n\t_ pipeline.Options\n)\n"
}

// The program in the README builds as pasted. Without a runtime it fails at once and
// names the socket.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	kit.Must(t, err)
	_, program, found := strings.Cut(string(readme), "```go\n")
	program, _, closed := strings.Cut(program, "```")
	if !found || !closed {
		t.Fatal("README.md has no Go program")
	}
	const socket = "/run/containerd/containerd.sock"
	if !strings.Contains(program, socket) {
		t.Fatalf("the program does not use %s", socket)
	}
	missing := filepath.Join(t.TempDir(), "missing.sock")
	source := filepath.Join(t.TempDir(), "main.go")
	kit.Must(t, os.WriteFile(source, []byte(strings.ReplaceAll(program, socket, missing)), 0o600))
	binary := filepath.Join(t.TempDir(), "podwatch")
	build(t, binary, source)
	output, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
	if err == nil || !strings.Contains(string(output), missing) {
		t.Errorf("without a runtime: %v, output %q, want an error that names %s", err, output, missing)
	}
}

func TestReadmeListsEveryPage(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	kit.Must(t, err)
	for page := range files(t, ".md") {
		page, err := filepath.Rel("../..", page)
		kit.Must(t, err)
		if page = filepath.ToSlash(page); strings.HasPrefix(page, "docs/dev/adr/") || strings.HasPrefix(page, "tests/") {
			page = path.Dir(page)
		}
		if page != "README.md" && !strings.Contains(string(readme), "]("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
	}
}
