package docs_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// library are the packages that a node agent imports, without fleet and otlp.
var library = []string{"", "/pleg", "/cache", "/cri", "/server", "/client", "/node", "/lookup", "/hint/..."}

// An embedder pays for what docs/dependencies.md names, and for nothing else: neither for what the
// program or a fleet needs, nor for an HTTP server.
func TestEmbeddingIsLight(t *testing.T) {
	const ours = "github.com/pleg-pipeline/pleg-pipeline"
	args := []string{"list", "-deps", "-f", `{{with .Module}}{{.Path}} {{$.ImportPath}} {{join $.Imports " "}}{{end}}`}
	for _, path := range library {
		args = append(args, ours+path)
	}
	list, err := exec.CommandContext(t.Context(), "go", args...).Output()
	kit.Must(t, err)
	var modules []string
	for line := range strings.Lines(string(list)) {
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
	text, err := os.ReadFile("../../docs/dependencies.md")
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
