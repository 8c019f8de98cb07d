// Package lab runs the program on a simulated runtime and opens its page in Chromium.
package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

// Build builds the program from root, the folder of the main module, into dir and returns
// its path.
func Build(ctx context.Context, root, dir string) (string, error) {
	binary := filepath.Join(dir, "pleg-pipeline")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/pleg-pipeline")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, output)
	}
	return binary, nil
}

// Node is a simulated runtime that is served on a socket, until Stop.
type Node struct {
	dir  string
	Stop func()
}

// Serve serves a runtime on a socket in dir.
func Serve(ctx context.Context, runtime *simruntime.Runtime, dir string) *Node {
	n := &Node{dir: dir}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = runtime.ListenAndServe(ctx, n.socket()) // ends with ctx; a runtime that fails fails the program
	}()
	n.Stop = func() { cancel(); <-ended }
	return n
}

func (n *Node) socket() string { return filepath.Join(n.dir, "cri.sock") }

// StartDaemon runs the program on the runtime. It serves its page on listen, whose port may
// be 0.
func (n *Node) StartDaemon(ctx context.Context, binary, listen string, flags ...string) (*load.Daemon, error) {
	return load.StartDaemon(ctx, load.DaemonOptions{
		Program: binary, Dir: n.dir, Name: "pleg",
		Args: append([]string{"-r", "unix://" + n.socket(), "--listen", listen}, flags...),
	})
}
