package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os/exec"
	"strings"
	"time"
)

// stopGrace is how long a child may take to stop before it is killed. The
// kubelet cannot be stopped while a call hangs.
const stopGrace = 500 * time.Millisecond

// Child is a process that serves a probe.
type Child struct {
	*exec.Cmd
	calls  *rpc.Client
	stderr bytes.Buffer
}

// StartChild runs a program, which is killed when ctx ends.
func StartChild(ctx context.Context, program string, args ...string) (*Child, error) {
	c := &Child{Cmd: exec.CommandContext(ctx, program, args...)}
	c.Stderr, c.WaitDelay = &c.stderr, stopGrace
	stdin, inErr := c.StdinPipe()
	stdout, outErr := c.StdoutPipe()
	err := errors.Join(inErr, outErr)
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	c.calls = jsonrpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{stdout, stdin})
	return c, nil
}

// Call calls a method of the probe and waits for the answer. The end of the child is an error,
// explained by its standard error.
func (c *Child) Call(method string, argument, answer any) error {
	err := c.calls.Call(service+"."+method, argument, answer)
	if _, answered := errors.AsType[rpc.ServerError](err); err == nil || answered {
		return err
	}
	c.Stop()
	if output := strings.TrimSpace(c.stderr.String()); output != "" {
		return fmt.Errorf("%s has ended: %s", c.Path, output)
	}
	return fmt.Errorf("%s has ended: %w", c.Path, err)
}

// Stop ends the child and kills it after [stopGrace]. Its exit code does not
// matter: all answers have arrived.
func (c *Child) Stop() {
	if c == nil {
		return
	}
	_ = c.calls.Close()
	killer := time.AfterFunc(stopGrace, func() { _ = c.Process.Kill() })
	defer killer.Stop()
	_ = c.Wait()
}
