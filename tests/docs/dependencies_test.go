package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// library are the packages that a node agent imports, without fleet.
var library = []string{"", "/pleg", "/cache", "/cri", "/server", "/client", "/node", "/lookup", "/hint/..."}

const ours = "github.com/pleg-pipeline/pleg-pipeline"

// An embedder links only the modules that docs/dev/dependencies.md names: no dependency of the program
// or of a fleet, and no HTTP server.
func TestEmbeddingIsLight(t *testing.T) {
	args := []string{"list", "-deps", "-f", `{{with .Module}}{{.Path}} {{$.ImportPath}} {{join $.Imports " "}}{{end}}`}
	for _, path := range library {
		args = append(args, ours+path)
	}
	list := goCommand(t, "../..", args...)
	var modules []string
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if module := words[0]; module != ours {
			modules = append(modules, module)
			continue
		}
		if slices.Contains(words[2:], "net/http") {
			t.Errorf("%s imports net/http", words[1])
		}
	}
	slices.Sort(modules)
	modules = slices.Compact(modules)
	text, err := os.ReadFile("../../docs/dev/dependencies.md")
	kit.Must(t, err)
	_, section, _ := strings.Cut(string(text), "## In the library\n")
	section, _, _ = strings.Cut(section, "An embedder of `fleet`")
	var named []string
	for _, m := range regexp.MustCompile("`([a-z0-9.]+\\.[a-z]+/[\\w./-]+)`").FindAllStringSubmatch(section, -1) {
		named = append(named, m[1])
	}
	if slices.Sort(named); !slices.Equal(named, modules) {
		t.Errorf("an embedding needs the modules %q,\nthe page names %q", modules, named)
	}
}

// Go selects versions from all modules in the graph, not only from those that are linked.
func TestGraphIsLight(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	kit.Must(t, err)
	var imports strings.Builder
	for _, path := range library {
		fmt.Fprintf(&imports, "import _ %q\n", ours+strings.Replace(path, "...", "crievents", 1))
	}
	kit.Must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"+imports.String()+"func main() {}\n"), 0o600))
	mod := fmt.Sprintf("module example.com/agent\ngo 1.26.0\nreplace %s => %s\nrequire %s v0.0.0\n", ours, root, ours)
	kit.Must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	goCommand(t, dir, "mod", "tidy")
	if modules := strings.Fields(goCommand(t, dir, "list", "-m", "-f", "{{.Path}}", "all")); len(modules) > 80 {
		t.Errorf("the graph of an embedder has %d modules, the limit is 80: %q", len(modules), modules)
	}
}

// goCommand runs the command go in a folder, with the go.mod there.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %v: %v", args, err)
	}
	return string(out)
}
