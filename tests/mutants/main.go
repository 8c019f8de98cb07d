// Command mutants breaks the rules of the design one at a time, each in a copy of the
// tree, and runs the test that must then fail.
//
//	mutants [-check] [-jobs N] [PART...]
//
// Without a PART it tries all mutants, otherwise the mutants with a PART in their FILE/NAME. With
// -check it only looks whether their edits still fit the sources. The files FILE.txt of this folder
// contain the mutants:
//
//	NAME: TEST[/SUBTEST] PACKAGE [FLAGS OF THE TEST]
//	path/of/the/source.go
//	 a line as it is
//	-a line that goes
//	+a line that comes
//
// The kept lines and the removed lines must be in the source exactly once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"
)

const folder = "tests/mutants"

// mutant is one edit of the sources, in one or several places, and the test that notices.
type mutant struct {
	name, test, pkg string
	flags           []string
	edits           []edit
}

type edit struct {
	file     string
	old, new strings.Builder
}

func main() {
	check := flag.Bool("check", false, "only check that the edits fit the sources")
	jobs := flag.Int("jobs", 2, "mutants that are tried at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *check, *jobs, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool, jobs int, parts []string) error {
	if jobs < 1 {
		return fmt.Errorf("-jobs must be at least 1, got %d", jobs)
	}
	mutants, err := load(parts)
	if err != nil {
		return err
	}
	// The paths of the copies differ: without -trimpath each would compile everything.
	copies := make(chan string, jobs)
	for range jobs {
		tree, err := os.MkdirTemp("", "mutants-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(tree) }()
		if err := copyTree(tree); err != nil {
			return fmt.Errorf("copy the sources: %w", err)
		}
		copies <- tree
	}
	var bad atomic.Int64
	var all errgroup.Group
	all.SetLimit(jobs)
	for _, m := range mutants {
		all.Go(func() error {
			tree := <-copies
			defer func() { copies <- tree }()
			verdict, err := m.try(ctx, tree, check)
			if ctx.Err() != nil {
				return ctx.Err() // the test was killed
			}
			if err != nil {
				verdict = "STALE    " + m.name + ": " + err.Error()
			}
			if !strings.HasPrefix(verdict, "killed") {
				bad.Add(1)
			}
			if verdict != "killed" {
				fmt.Println(verdict)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if n := bad.Load(); n > 0 {
		return fmt.Errorf("%d of %d mutants are stale or survived", n, len(mutants))
	}
	fmt.Printf("all %d mutants pass\n", len(mutants))
	return nil
}

// load reads the mutants whose names contain one of the parts.
func load(parts []string) ([]*mutant, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, errors.New("no mutants: run it at the top of the repository")
	}
	var mutants []*mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		of, err := parse(strings.TrimSuffix(filepath.Base(file), ".txt"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		mutants = append(mutants, of...)
	}
	mutants = slices.DeleteFunc(mutants, func(m *mutant) bool {
		return len(parts) > 0 && !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(m.name, part) })
	})
	if len(mutants) == 0 {
		return nil, fmt.Errorf("no mutant has %q in its name", parts)
	}
	return mutants, nil
}

var head = regexp.MustCompile(`^([a-z0-9-]+): (\S+) (\S+)(.*)$`)

func parse(file, text string) ([]*mutant, error) {
	var mutants []*mutant
	var m *mutant
	for line := range strings.Lines(text) {
		words := strings.TrimSuffix(line, "\n")
		if h := head.FindStringSubmatch(words); h != nil {
			m = &mutant{name: file + "/" + h[1], test: h[2], pkg: h[3], flags: strings.Fields(h[4])}
			if slices.ContainsFunc(mutants, func(other *mutant) bool { return other.name == m.name }) {
				return nil, fmt.Errorf("two mutants have the name %s", m.name)
			}
			mutants = append(mutants, m)
			continue
		}
		switch {
		case words == "":
		case m == nil:
			return nil, fmt.Errorf("%q is before the first mutant", words)
		case !strings.Contains(" +-", words[:1]):
			m.edits = append(m.edits, edit{file: words})
		case len(m.edits) == 0:
			return nil, fmt.Errorf("%s: %q comes before the path of a source", m.name, words)
		default:
			m.edits[len(m.edits)-1].add(words[0], line[1:])
		}
	}
	return mutants, nil
}

func (e *edit) add(kind byte, line string) {
	if kind != '+' {
		e.old.WriteString(line)
	}
	if kind != '-' {
		e.new.WriteString(line)
	}
}

// copyTree copies the files that git knows or would add into a folder.
func copyTree(tree string) error {
	files, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
		info, err := os.Stat(file)
		if errors.Is(err, os.ErrNotExist) { // deleted, but not yet in a commit
			continue
		}
		text, err := os.ReadFile(file)
		to := filepath.Join(tree, file)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755)); err == nil {
			err = os.WriteFile(to, text, info.Mode())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// try returns the verdict on a mutant: "killed" alone for a mutant that was only checked.
func (m *mutant) try(ctx context.Context, tree string, check bool) (string, error) {
	if err := m.hasTest(); err != nil {
		return "", err
	}
	for n := range m.edits {
		restore, err := m.edits[n].apply(tree)
		if err != nil {
			return "", err
		}
		defer restore()
	}
	if check {
		return "killed", nil
	}
	module, trim := filepath.Clean(m.pkg), "-trimpath=true"
	for module != "." && !exists(filepath.Join(tree, module, "go.mod")) {
		module = filepath.Dir(module)
	}
	if module == "kubelet" || module == "deploy" {
		trim = "-trimpath=false" // the module has many dependencies: it shares the build cache with other tests
	}
	args := []string{"test", "-v", "-vet=off", "-count=1", trim, "-ldflags=-s -w", "-timeout=60s", "-run=^" + m.test + "$", ".", "-args"}
	test := exec.CommandContext(ctx, "go", append(args, m.flags...)...)
	test.Dir = filepath.Join(tree, m.pkg)
	test.Env = append(os.Environ(), "GOWORK=off")
	output, err := test.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Sprintf("SURVIVED %s: %s in %s passes", m.name, m.test, m.pkg), nil
	case !strings.Contains(string(output), "=== RUN"):
		return "", fmt.Errorf("%s did not run\n%s", m.test, output)
	}
	return fmt.Sprintf("killed   %s: %s: %s", m.name, m.test, strings.TrimSpace(reason.FindString(string(output)))), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var reason = regexp.MustCompile(`(?m)^.*(_test\.go:\d+: |^panic: |deadlock).*$`)

func (m *mutant) hasTest() error {
	test, _, _ := strings.Cut(m.test, "/") // the rest names a subtest
	files, _ := filepath.Glob(filepath.Join(m.pkg, "*_test.go"))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "\nfunc "+test+"(") {
			return nil
		}
	}
	return fmt.Errorf("%s has no %s", m.pkg, m.test)
}

// apply makes the edit in a copy of the tree. restore undoes it.
func (e *edit) apply(tree string) (restore func(), err error) {
	path := filepath.Join(tree, e.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	before := "\n" + string(text)
	if n := strings.Count(before, "\n"+e.old.String()); n != 1 || e.old.Len() == 0 {
		return nil, fmt.Errorf("%s has these lines %d times, want once:\n%s", e.file, n, e.old.String())
	}
	after := strings.Replace(before, "\n"+e.old.String(), "\n"+e.new.String(), 1)
	restore = func() { _ = os.WriteFile(path, text, 0o644) }
	return restore, os.WriteFile(path, []byte(after[1:]), 0o644)
}
