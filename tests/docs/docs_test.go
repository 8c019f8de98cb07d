// Package docs_test checks the documentation: its length, its links, and the tests that it names.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxWords bounds all pages together, except bench/results and docs/runtimes.md, whose
// tables are generated.
const maxWords = 34_000

var (
	link     = regexp.MustCompile(`\]\(([^)#\s]+)`)
	named    = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*…?`)
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// files returns the texts of the files with this suffix in the repository, by path.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir // tools and caches
		}
		if err != nil || !strings.HasSuffix(path, suffix) || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestPagesHaveFewWords(t *testing.T) {
	words := 0
	for path, text := range files(t, ".md") {
		if path := filepath.ToSlash(path); !strings.Contains(path, "bench/results/") && !strings.HasSuffix(path, "docs/runtimes.md") {
			words += len(strings.Fields(text))
		}
	}
	if words > maxWords {
		t.Errorf("the pages have %d words, want at most %d", words, maxWords)
	}
}

func TestLinksPointToFiles(t *testing.T) {
	for path, text := range files(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil && !strings.Contains(m[1], ":") {
				t.Errorf("%s: link %s: %v", path, m[1], err)
			}
		}
	}
}

func TestNamedTestsExist(t *testing.T) {
	tests := "|"
	for _, text := range files(t, "_test.go") {
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			tests += m[1] + "|"
		}
	}
	for path, text := range files(t, ".md") {
		for _, name := range named.FindAllString(text, -1) {
			// An ellipsis stands for several names that begin alike.
			if name != "TestX" && !strings.Contains(tests, strings.TrimSuffix("|"+name+"|", "…|")) {
				t.Errorf("%s names %s, which is no test", path, name)
			}
		}
	}
}
