package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var (
	block = regexp.MustCompile("(?ms)^```.*?^```")
	span  = regexp.MustCompile("`([^`\n]+)`")
	// fileName matches the name of a file, by the extensions of this repository.
	fileName = regexp.MustCompile(`^[\w./-]*\w\.(?:css|go|html|js|json|md|mod|png|proto|py|service|sh|sum|svg|txt|yaml|yml)$`)
	folder   = regexp.MustCompile(`^(?:[\w-]+/|\./)[\w./-]*$`)
	// module begins with the name of a host.
	module = regexp.MustCompile(`^[\w-]+\.[\w.-]+/`)
)

// elsewhere are files that pages name and that are not in the repository.
var elsewhere = []string{
	"generic.go", "kubelet.go", "pkg/kubelet/kubelet.go", // the kubelet's
	"collector.yaml", // an example in docs/otlp.md
}

// TestPathsExist checks each path in backticks. It begins at the root of the repository or in
// the folder of the page. A file name alone may be in any folder.
func TestPathsExist(t *testing.T) {
	base := make(map[string]bool)
	for path := range files(t, "") {
		base[filepath.Base(path)] = true
	}
	for page, text := range files(t, ".md") {
		for _, path := range pathsIn(text) {
			if !base[path] && !exists("../..", path) && !exists(filepath.Dir(page), path) && !slices.Contains(elsewhere, path) {
				t.Errorf("%s names %s, which does not exist", page, path)
			}
		}
	}
}

func TestPathsInText(t *testing.T) {
	text := "`pleg/event.go`, `cd kubelet`, `go test ./none`, `pod.yaml`, `nowhere/x.go`, `shop/web-0`, `cri/none`\n" +
		"`/livez`, `/etc/crictl.yaml`, `go.dev/x.go`, `./...`, `../other`\n```\n`inside/block.go`\n```\n"
	want := []string{"pleg/event.go", "./none", "pod.yaml", "nowhere/x.go", "cri/none"}
	if got := pathsIn(text); !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
}

// pathsIn returns the words in backticks that are relative paths: they name a file, begin with
// "./", or begin with a folder at the root.
func pathsIn(text string) []string {
	var paths []string
	for _, m := range span.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		for word := range strings.FieldsSeq(m[1]) {
			first, _, _ := strings.Cut(word, "/")
			named := fileName.MatchString(word) || folder.MatchString(word) && exists("../..", first)
			if named && first != "" && !module.MatchString(word) && !strings.Contains(word, "..") {
				paths = append(paths, word)
			}
		}
	}
	return paths
}

func exists(folder, path string) bool {
	_, err := os.Stat(filepath.Join(folder, path))
	return err == nil
}

var flagName = regexp.MustCompile("`--([a-z][a-z-]+)")

// TestFlagsExist checks each flag in backticks. CHANGELOG.md may name removed flags.
func TestFlagsExist(t *testing.T) {
	var sources strings.Builder
	for path, text := range files(t, ".go") {
		if strings.Contains(filepath.ToSlash(path), "/pleg-pipeline/internal/cli/") {
			sources.WriteString(text)
		}
	}
	for page, text := range files(t, ".md") {
		for _, m := range flagName.FindAllStringSubmatch(text, -1) {
			if filepath.Base(page) != "CHANGELOG.md" && !strings.Contains(sources.String(), `"`+m[1]+`"`) {
				t.Errorf("%s names --%s, which the program does not have", page, m[1])
			}
		}
	}
}

var target = regexp.MustCompile("`make ([a-z][a-z0-9-]*)")

// TestTargetsExist checks each target of the Makefile that a page names.
func TestTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	kit.Must(t, err)
	for page, text := range files(t, ".md") {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s names make %s, which does not exist", page, m[1])
			}
		}
	}
}
