package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// stopGrace is how long a child may take to stop before it is killed. The
// kubelet cannot be stopped while a call hangs.
const stopGrace = 500 * time.Millisecond

// failer is an answer that may report an error.
type failer interface{ Failure() string }

// child is a process that receives messages of type In and answers each with one
// of type Out.
type child[In any, Out failer] struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr *bytes.Buffer
	// grace is how long the process may take to stop before it is killed.
	grace time.Duration
}

// start runs a program, which is killed when ctx ends.
func start[In any, Out failer](ctx context.Context, program string, args ...string) (*child[In, Out], error) {
	c := &child[In, Out]{name: program, stderr: new(bytes.Buffer), grace: stopGrace}
	c.cmd = exec.CommandContext(ctx, program, args...)
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = stopGrace
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	c.stdout = bufio.NewScanner(stdout)
	c.stdout.Buffer(nil, control.MaxLine)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return c, nil
}

// ask sends a message and waits for the answer. An answer that reports an error
// becomes an error.
func (c *child[In, Out]) ask(message In) (Out, error) {
	var answer Out
	line, err := json.Marshal(message)
	if err != nil {
		return answer, fmt.Errorf("ask %s: %w", c.name, err)
	}
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		return answer, c.ended(err)
	}
	if !c.stdout.Scan() {
		err := c.stdout.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return answer, c.ended(err)
	}
	if err := json.Unmarshal(c.stdout.Bytes(), &answer); err != nil {
		return answer, fmt.Errorf("answer of %s: %w", c.name, err)
	}
	if failure := answer.Failure(); failure != "" {
		return answer, fmt.Errorf("%s: %s", c.name, failure)
	}
	return answer, nil
}

// ended explains a missing answer by the child's standard error.
func (c *child[In, Out]) ended(err error) error {
	c.stop()
	if output := strings.TrimSpace(c.stderr.String()); output != "" {
		return fmt.Errorf("%s has ended: %s", c.name, output)
	}
	return fmt.Errorf("%s has ended: %w", c.name, err)
}

// stop ends the child and kills it after its grace period. Its exit code does not
// matter: all answers have arrived.
func (c *child[In, Out]) stop() {
	_ = c.stdin.Close()
	killer := time.AfterFunc(c.grace, func() { _ = c.cmd.Process.Kill() })
	defer killer.Stop()
	_ = c.cmd.Wait()
}
