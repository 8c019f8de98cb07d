package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func compareCommand() *cobra.Command {
	var root string
	var runs int
	cmd := &cobra.Command{
		Use: "compare REF [PACKAGE...]", Short: "Compare the Go benchmarks with those of another revision", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return compare(cmd.Context(), root, args[0], args[1:], runs)
		},
	}
	cmd.Flags().StringVar(&root, "root", "../..", "root of the repository")
	// benchstat needs ten runs to tell a change from noise.
	cmd.Flags().IntVar(&runs, "runs", 10, "number of runs of each benchmark")
	return cmd
}

func compare(ctx context.Context, root, ref string, only []string, runs int) (err error) {
	if ref == "" {
		return errors.New("compare: REF is empty: name a revision, such as REF=HEAD~1")
	}
	temp, err := os.MkdirTemp("", "pleg-bench-compare-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	tree := filepath.Join(temp, "tree")
	if out, err := exec.CommandContext(ctx, "git", "-C", root, "worktree", "add", "--detach", tree, ref).CombinedOutput(); err != nil {
		return fmt.Errorf("compare with %s: %w: %s", ref, err, out)
	}
	defer func() {
		err = errors.Join(err, exec.Command("git", "-C", root, "worktree", "remove", "--force", tree).Run())
	}()
	packages, err := commonBenchmarks(tree, root, only)
	if err != nil {
		return fmt.Errorf("compare with %s: %w", ref, err)
	}
	fmt.Fprintln(os.Stderr, "comparing", strings.Join(packages, " "))
	files, err := measureBoth(ctx, tree, root, temp, packages, runs)
	if err != nil {
		return err
	}
	stat := exec.CommandContext(ctx, "go", append([]string{"tool", "benchstat"}, files...)...)
	stat.Stdout, stat.Stderr = os.Stdout, os.Stderr
	return stat.Run()
}

// commonBenchmarks returns the packages with Go benchmarks that both trees have,
// reduced to those in only unless it is empty. A package that moved between the
// two revisions has no counterpart and is left out with a warning.
func commonBenchmarks(before, after string, only []string) ([]string, error) {
	old, oldErr := benchmarkPackages(before)
	current, err := benchmarkPackages(after)
	if err := errors.Join(oldErr, err); err != nil {
		return nil, err
	}
	var common []string
	for _, p := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(old, current)))) {
		switch {
		case len(only) > 0 && !slices.Contains(only, p):
		case slices.Contains(old, p) && slices.Contains(current, p):
			common = append(common, p)
		default:
			fmt.Fprintln(os.Stderr, "left out, in one revision only:", p)
		}
	}
	if len(common) == 0 {
		return nil, errors.New("no package has Go benchmarks in both revisions")
	}
	return common, nil
}

// benchmarkPackages returns the packages of the module in root that have Go
// benchmarks, such as ./bench.
func benchmarkPackages(root string) ([]string, error) {
	var packages []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root {
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return filepath.SkipDir
			}
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("\nfunc Benchmark")) {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		packages = append(packages, "./"+filepath.ToSlash(dir))
		return err
	})
	slices.Sort(packages)
	return slices.Compact(packages), err
}

// measureBoth runs the Go benchmarks of two trees in turns, so that other load on
// the machine affects both, and returns the files for benchstat in temp. It warns
// of a benchmark that fails, which the other revision may have fixed.
func measureBoth(ctx context.Context, before, after, temp string, packages []string, runs int) ([]string, error) {
	bar := newBar(2*runs, os.Stderr)
	defer func() { _ = bar.Exit() }()
	sides := []struct{ name, dir string }{{"old", before}, {"new", after}}
	results := make([]bytes.Buffer, len(sides))
	failures := map[string]bool{}
	for range runs {
		for i, side := range sides {
			bar.Describe(side.name)
			out, err := goBench(ctx, side.dir, 1, packages...)
			if err != nil && (ctx.Err() != nil || !bytes.Contains(out, []byte("\nBenchmark"))) {
				return nil, err
			}
			for _, f := range failed(side.name, out) {
				failures[f] = true
			}
			results[i].Write(out)
			_ = bar.Add(1)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(failures)) {
		fmt.Fprintln(os.Stderr, "left out, fails:", f)
	}
	var files []string
	var err error
	for i, side := range sides {
		file := filepath.Join(temp, side.name)
		err = errors.Join(err, os.WriteFile(file, results[i].Bytes(), 0o600))
		files = append(files, side.name+"="+file)
	}
	return files, err
}

// failed returns the benchmarks that failed, and the packages that did not build.
func failed(side string, out []byte) []string {
	var names []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "--- FAIL") || strings.HasSuffix(line, "[build failed]") {
			names = append(names, side+": "+line)
		}
	}
	return names
}
