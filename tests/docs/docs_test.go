// Package docs_test checks the documentation: its length, its links, and the tests that it names.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// maxWords bounds all pages together.
const maxWords = 22_000

var (
	link     = regexp.MustCompile(`\]\(([^)#\s]*)#?([^)\s]*)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unlinked = regexp.MustCompile(`[^\w -]`)
	named    = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*…?`)
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// files returns the text of each file in the repository with the suffix, by path.
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
	kit.Must(t, err)
	return texts
}

func TestPagesHaveFewWords(t *testing.T) {
	words := 0
	for _, text := range files(t, ".md") {
		words += len(strings.Fields(text))
	}
	if words > maxWords {
		t.Errorf("the pages have %d words, want at most %d", words, maxWords)
	}
}

func TestLinksPointToFilesAndHeadings(t *testing.T) {
	pages := files(t, ".md")
	for path, text := range pages {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", path, m[1], err)
			}
			if m[2] != "" && !hasHeading(pages[target], m[2]) {
				t.Errorf("%s: link %s#%s: no such heading", path, m[1], m[2])
			}
		}
	}
}

// hasHeading reports whether a page contains the heading that a browser finds by this anchor.
func hasHeading(text, anchor string) bool {
	return slices.ContainsFunc(heading.FindAllStringSubmatch(text, -1), func(m []string) bool {
		return strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor
	})
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

func TestEveryEventTypeIsDocumented(t *testing.T) {
	for path, page := range files(t, "subscriptions.md") {
		for _, typ := range eventtype.Types() {
			if row := fmt.Sprintf("| `%s` | `%s` |", typ, eventtype.Of(typ).Name); !strings.Contains(page, row) {
				t.Errorf("%s has no row %s", path, row)
			}
		}
	}
}
