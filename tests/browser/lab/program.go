// Package lab runs the program on a simulated runtime and opens its page in Chromium.
package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
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

// ServeRuntime serves a runtime on a socket in dir until stop is called.
func ServeRuntime(ctx context.Context, node *simruntime.Runtime, dir string) (socket string, stop func()) {
	socket = filepath.Join(dir, "cri.sock")
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = node.ListenAndServe(ctx, socket) // ends with ctx; a runtime that fails fails the program
	}()
	return socket, func() { cancel(); <-ended }
}

// Program is the program while it runs as a daemon.
type Program struct {
	// Address is where its page is.
	Address string

	command *exec.Cmd
	ended   chan struct{} // closed when stderr is at its end
}

var serving = regexp.MustCompile(`on http://(\S+)`)

// StartProgram runs the program on a runtime, until Stop. It serves on listen, whose port
// may be 0.
func StartProgram(ctx context.Context, binary, socket, listen string, flags ...string) (*Program, error) {
	args := append([]string{"run", "--quiet", "-r", "unix://" + socket, "--listen", listen}, flags...)
	p := &Program{command: exec.CommandContext(ctx, binary, args...), ended: make(chan struct{})}
	p.command.Env = os.Environ()
	stderr, err := p.command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	lines := bufio.NewScanner(stderr)
	var said strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if match := serving.FindStringSubmatch(lines.Text()); match != nil {
			p.Address = match[1]
			break
		}
	}
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	if p.Address == "" {
		return nil, errors.Join(fmt.Errorf("the program serves no page:\n%s", said.String()), p.Stop())
	}
	return p, nil
}

// Stop ends the program in order.
func (p *Program) Stop() error { return p.signal(syscall.SIGTERM) }

// Kill ends it at once.
func (p *Program) Kill() error {
	_ = p.signal(syscall.SIGKILL) // its exit code says that it was killed
	return nil
}

func (p *Program) signal(s syscall.Signal) error {
	if err := p.command.Process.Signal(s); err != nil {
		return err
	}
	<-p.ended
	return p.command.Wait()
}
