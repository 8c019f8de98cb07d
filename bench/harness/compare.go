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
	var files []string
	for _, side := range []struct{ name, dir string }{{"old", tree}, {"new", root}} {
		file := filepath.Join(temp, side.name)
		out, err := goBench(ctx, side.dir, "./bench", compareRuns)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, out, 0o644); err != nil {
			return err
		}
		files = append(files, side.name+"="+file)
	}
	stat := exec.CommandContext(ctx, "go", append([]string{"tool", "benchstat"}, files...)...)
	stat.Stdout, stat.Stderr = os.Stdout, os.Stderr
	return stat.Run()
}

func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	return cmd.CombinedOutput()
}
