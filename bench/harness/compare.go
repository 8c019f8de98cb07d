package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// compareRuns is what benchstat needs to tell a change from noise.
const compareRuns = 10

func compareCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: "compare REF", Short: "Compare the Go benchmarks with those of another revision", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return compare(cmd.Context(), root, args[0])
		},
	}
	cmd.Flags().StringVar(&root, "root", "../..", "root of the repository")
	return cmd
}

func compare(ctx context.Context, root, ref string) (err error) {
	if ref == "" {
		return errors.New("compare: REF is empty: name a revision, such as REF=HEAD~1")
	}
	temp, err := os.MkdirTemp("", "pleg-bench-compare-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	tree := filepath.Join(temp, "tree")
	if out, err := git(ctx, root, "worktree", "add", "--detach", tree, ref); err != nil {
		return fmt.Errorf("compare with %s: %w: %s", ref, err, out)
	}
	defer func() {
		_, removeErr := git(context.WithoutCancel(ctx), root, "worktree", "remove", "--force", tree)
		err = errors.Join(err, removeErr)
	}()
	if _, err := os.Stat(filepath.Join(tree, "bench", "doc.go")); err != nil {
		return fmt.Errorf("compare with %s: that revision has no Go benchmarks in bench", ref)
	}
	files, err := measureBoth(ctx, tree, root, temp)
	if err != nil {
		return err
	}
	stat := exec.CommandContext(ctx, "go", append([]string{"tool", "benchstat"}, files...)...)
	stat.Stdout, stat.Stderr = os.Stdout, os.Stderr
	return stat.Run()
}

// measureBoth runs the Go benchmarks of two trees in turns, so that what else
// the machine does meets both, and returns the files for benchstat in temp.
func measureBoth(ctx context.Context, before, after, temp string) ([]string, error) {
	bar := newBar(2*compareRuns, os.Stderr)
	defer func() { _ = bar.Exit() }()
	sides := []struct{ name, dir string }{{"old", before}, {"new", after}}
	results := make([][]byte, len(sides))
	for range compareRuns {
		for i, side := range sides {
			bar.Describe(side.name)
			out, err := goBench(ctx, side.dir, "./bench", 1)
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], out...)
			_ = bar.Add(1)
		}
	}
	var files []string
	for i, side := range sides {
		file := filepath.Join(temp, side.name)
		if err := os.WriteFile(file, results[i], 0o600); err != nil {
			return nil, err
		}
		files = append(files, side.name+"="+file)
	}
	return files, nil
}

func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	return cmd.CombinedOutput()
}
