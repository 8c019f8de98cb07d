package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/client"
)

const (
	// startTimeout bounds the start of an agent, stopTimeout its end.
	startTimeout = 30 * time.Second
	stopTimeout  = 20 * time.Second
	// history is short, so that a subscriber cannot resume after a long absence.
	history = "400"
)

// mode is one way to run the program.
type mode struct {
	name string
	args []string
}

var modes = []mode{
	{"polling", nil},
	{"events", []string{"--events", "require", "--relist-period-with-events", "10s"}},
}

// agent is a process of the program.
type agent struct {
	mode   string
	cmd    *exec.Cmd
	log    string // path of its standard error
	url    string
	ended  chan struct{} // closed when the process has ended
	err    error         // of the process, once it has ended
	client *client.Client
	http   *http.Client
}

// startAgent runs the program and returns once it serves. Its socket and its log are in
// dir.
func startAgent(ctx context.Context, program, dir, endpoint string, m mode) (*agent, error) {
	a := &agent{
		mode: m.name, log: filepath.Join(dir, m.name+".log"), ended: make(chan struct{}),
		http: &http.Client{Timeout: startTimeout},
	}
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of the agent: %w", err)
	}
	defer func() { _ = log.Close() }()
	socket := filepath.Join(dir, m.name+".sock")
	args := append([]string{
		"run", "--quiet", "--socket", socket, "--listen", "127.0.0.1:0", "--runtime-endpoint", endpoint,
		"--history", history, "--list-timeout", "3s", "--inspect-timeout", "3s", "--log-level", "warn",
	}, m.args...)
	a.cmd = exec.Command(program, args...) //nolint:noctx // stop ends it
	a.cmd.Stderr = log
	// Ctrl-C must reach only the soak, which ends its agents itself.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	go func() { // it ends with the process; stop waits for it
		defer close(a.ended)
		a.err = a.cmd.Wait()
	}()
	if a.client, err = client.New(socket, client.Options{}); err == nil {
		err = a.awaitStart(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start agent (%s): %w", a.mode, err), a.stop(ctx))
	}
	return a, nil
}

var servedOn = regexp.MustCompile(`on (http://\S+)`)

// awaitStart waits until the agent serves, and gets its address from its log.
func (a *agent) awaitStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		text, err := os.ReadFile(a.log)
		if err != nil {
			return err
		}
		if found := servedOn.FindSubmatch(text); found != nil {
			a.url = string(found[1])
			if _, err := a.client.Pods(ctx); err == nil {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-a.ended:
			return fmt.Errorf("it has ended: %s", text)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), text)
		}
	}
}

// alive returns an error if the process has ended.
func (a *agent) alive() error {
	select {
	case <-a.ended:
		text, _ := os.ReadFile(a.log)
		return fmt.Errorf("agent (%s) has ended: %w\n%s", a.mode, a.err, text[max(0, len(text)-4000):])
	default:
		return nil
	}
}

// stop sends SIGTERM, and returns an error if the agent does not exit with code 0.
func (a *agent) stop(ctx context.Context) error {
	if a.client != nil {
		_ = a.client.Close()
	}
	a.http.CloseIdleConnections()
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	select {
	case <-a.ended:
		if a.err != nil {
			return fmt.Errorf("end of agent (%s): %w", a.mode, a.err)
		}
		return nil
	case <-ctx.Done():
		_ = a.cmd.Process.Kill()
		<-a.ended
		return fmt.Errorf("agent (%s) has not ended within %v of SIGTERM", a.mode, stopTimeout)
	}
}

// pods returns the agent's cache.
func (a *agent) pods(ctx context.Context) ([]cache.Entry, error) {
	pods, err := a.client.Pods(ctx)
	entries := make([]cache.Entry, len(pods))
	for i, p := range pods {
		entries[i] = cache.Entry(p)
	}
	return entries, err
}
