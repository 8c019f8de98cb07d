package docs_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

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
		if page = filepath.ToSlash(page); strings.HasPrefix(page, "docs/adr/") || strings.HasPrefix(page, "tests/") {
			page = path.Dir(page)
		}
		if page != "README.md" && !strings.Contains(string(readme), "]("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
	}
}
