//go:build linux

package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// program returns the path of a program that setup.sh has built.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(".bin", name))
	kit.Must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run tests/real/cluster/run.sh: %v", err)
	}
	return path
}

// start runs a program in an empty folder until the test ends.
func start(t *testing.T, path string, args ...string) *process.Process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t, "containerd"))+":"+os.Getenv("PATH"))
	return process.Run(t, cmd)
}
