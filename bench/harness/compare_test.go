package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeTree writes empty Go benchmarks into the packages of a new tree.
func writeTree(t *testing.T, packages ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range packages {
		dir := filepath.Join(root, p)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := "package p_test\n\nfunc BenchmarkX(b *testing.B) {}\n"
		if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCompareReportsFailedBenchmarks(t *testing.T) {
	out := "BenchmarkA-2 \t 5\t 400 ns/op\n--- FAIL: BenchmarkB\n    b_test.go:1: boom\nFAIL\tx\t0.1s\nFAIL\ty [build failed]\n"
	want := []string{"new: --- FAIL: BenchmarkB", "new: FAIL\ty [build failed]"}
	if got := failed("new", []byte(out)); !slices.Equal(got, want) {
		t.Errorf("failed = %q, want %q", got, want)
	}
}

func TestCompareLeavesOutMovedPackages(t *testing.T) {
	before := writeTree(t, "bench", "cri", "internal/recording", "bench/kubelet", "testdata/x")
	after := writeTree(t, "bench", "cri", "cmd/pleg-pipeline/internal/recording", "bench/kubelet", "testdata/x")
	for _, root := range []string{before, after} {
		if err := os.WriteFile(filepath.Join(root, "bench", "kubelet", "go.mod"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ only, want []string }{
		{nil, []string{"./bench", "./cri"}},
		{[]string{"./cri"}, []string{"./cri"}},
	} {
		if got, err := commonBenchmarks(before, after, c.only); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("commonBenchmarks of %v = %v, %v; want %v", c.only, got, err, c.want)
		}
	}
	if _, err := commonBenchmarks(before, after, []string{"./internal/recording"}); err == nil || !strings.Contains(err.Error(), "both revisions") {
		t.Errorf("commonBenchmarks of a moved package = %v, want an error", err)
	}
}
