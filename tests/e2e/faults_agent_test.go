//go:build linux

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// agent is the program as a node runs it, in a process of its own.
type agent struct {
	*observer
	program *program
	url     string
}

// agentOptions say how to run the program.
type agentOptions struct {
	name   string
	events bool
	// shell is run before the program, in the same process.
	shell string
	env   []string
	// memory, in bytes, limits the program, which is built as a release then: the
	// race detector takes many times as much.
	memory int64
}

// buildRelease builds the program as a release.
var buildRelease = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join(".bin", "pleg-pipeline-release"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", filepath.Join("..", ".."), "-o", path, "./cmd/pleg-pipeline").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return path, nil
})

// addAgent runs the program until the test ends and has the trial watch it.
func (tr *trial) addAgent(ctx context.Context, o agentOptions) *agent {
	t, l := tr.t, tr.lab
	t.Helper()
	build := buildProgram
	if o.memory > 0 {
		build = buildRelease
	}
	path, err := build()
	must(t, err)
	address := freeAddress(t)
	args := append(runArgs(l), "--listen", address, "--relist-threshold", "5s", "--list-timeout", "2s", "--inspect-timeout", "2s")
	if o.events {
		args = append(args, "--events", "auto", "--relist-period-with-events", "10s")
	}
	if o.memory > 0 {
		cell, err := l.Cell(strings.ReplaceAll(o.name, " ", "-"), o.memory)
		must(t, err)
		o.shell += " echo $$ >" + cell + ";"
	}
	shell := append([]string{"-c", o.shell + ` exec "$0" "$@"`, path}, args...)
	cmd := exec.CommandContext(ctx, "/bin/sh", shell...)
	cmd.Env = append(os.Environ(), o.env...)
	a := &agent{url: "http://" + address}
	a.program = watchProgram(t, l, newRecord(o.name), cmd)
	a.observer = &observer{seen: a.program.seen, healthy: a.ready, state: a.pods}
	tr.observers = append(tr.observers, a.observer)
	watchHealth(ctx, t, a.observer)
	must(t, eventually(ctx, func() bool { ok, err := a.ready(ctx); return ok && err == nil }))
	if o.events {
		must(t, eventually(ctx, func() bool { return a.follows(ctx) }))
		must(t, sleepUntil(ctx, time.Now().Add(500*time.Millisecond))) // the list that this brings
		must(t, eventually(ctx, func() bool { return a.follows(ctx) }))
	}
	return a
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	return listener.Addr().String()
}

// get asks the program for a page.
func (a *agent) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(request)
}

// ready returns what /readyz says; an error if nobody answers.
func (a *agent) ready(ctx context.Context) (bool, error) {
	answer, err := a.get(ctx, "/readyz")
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK, nil
}

// follows reports whether the stream of events counts as up, and no list is under
// way.
func (a *agent) follows(ctx context.Context) bool {
	answer, err := a.get(ctx, "/metrics")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return err == nil && strings.Contains(string(text), "\npleg_event_stream_up 1\n") &&
		strings.Contains(string(text), "\npleg_relist_running_seconds 0\n")
}

// pods returns what /pods says. The names are spelled out once more because other
// programs read them.
func (a *agent) pods(ctx context.Context) (map[string]string, error) {
	answer, err := a.get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var list struct {
		Pods []struct {
			UID        string `json:"uid"`
			Error      string `json:"error"`
			Containers []struct {
				ID       string `json:"id"`
				State    string `json:"state"`
				ExitCode *int32 `json:"exitCode"`
				Reason   string `json:"reason"`
			} `json:"containers"`
			Sandboxes []struct {
				ID    string `json:"id"`
				State string `json:"state"`
			} `json:"sandboxes"`
		} `json:"pods"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, err
	}
	got := make(map[string]string)
	for _, p := range list.Pods {
		if p.Error != "" {
			return nil, fmt.Errorf("pod %s: %w", p.UID, errors.New(p.Error))
		}
		for _, c := range p.Containers {
			got[c.ID] = c.State
			if c.ExitCode != nil {
				got[c.ID] = fmt.Sprintf("%s %d %s", c.State, *c.ExitCode, c.Reason)
			}
		}
		for _, s := range p.Sandboxes {
			got[s.ID] = s.State
		}
	}
	return got, nil
}

// checkEnd ends the program, which must have had no data race, and must end well.
func (a *agent) checkEnd(t *testing.T) {
	t.Helper()
	if stderr := a.program.interrupt(t); strings.Contains(stderr, "DATA RACE") || strings.Contains(stderr, "panic") {
		t.Errorf("stderr of %s: %s", a.seen.observer, stderr)
	}
}

// agents starts one program that polls and one that follows the events.
func (tr *trial) agents(ctx context.Context, o agentOptions) []*agent {
	var all []*agent
	for _, mode := range []string{"polling", "events"} {
		o := o
		o.name, o.events = strings.TrimSpace(o.name+" "+mode), mode == "events"
		all = append(all, tr.addAgent(ctx, o))
	}
	return all
}

// lifeGoesOn has containers start, end and go, and each step told by all.
func (tr *trial) lifeGoesOn(ctx context.Context, attempt uint32) {
	t, l := tr.t, tr.lab
	t.Helper()
	spec := lab.ContainerSpec{Name: "side", Attempt: attempt, Program: lab.Exit(3)}
	side := func(p *lab.Pod) *lab.Container { all := p.Containers(); return all[len(all)-1] }
	for _, step := range []func(context.Context, int, *lab.Pod) error{
		func(ctx context.Context, _ int, p *lab.Pod) error {
			_, err := l.RunContainer(ctx, p, spec)
			return err
		},
		func(ctx context.Context, _ int, p *lab.Pod) error { return l.Trigger(ctx, side(p)) },
		func(ctx context.Context, _ int, p *lab.Pod) error { return removeDead(ctx, l, side(p)) },
	} {
		must(t, tr.scene.each(ctx, step))
		tr.awaitAll(ctx)
	}
}
