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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// agent is a program that serves its health and state over HTTP.
type agent struct {
	*program
	url string
}

// agentOptions say how to run an agent.
type agentOptions struct {
	name   string
	events bool
	// shell runs before the program, in the same process.
	shell string
	env   []string
	// memory limits the program, in bytes. It is then built without the race
	// detector.
	memory int64
}

// startAgent runs an agent until the test ends, and awaits its first list.
func (f *fixture) startAgent(ctx context.Context, o agentOptions) {
	t := f.t
	t.Helper()
	build := buildProgram
	if o.memory > 0 {
		build = buildRelease
	}
	path, err := build()
	must(t, err)
	address := freeAddress(t)
	args := append(f.runArgs(), "--listen", address, "--relist-threshold", "5s", "--list-timeout", "2s", "--inspect-timeout", "2s")
	if o.events {
		args = append(args, "--events", "auto", "--relist-period-with-events", "10s")
	}
	if o.memory > 0 {
		procs, err := f.lab.LimitMemory(strings.ReplaceAll(o.name, " ", "-"), o.memory)
		must(t, err)
		o.shell += " echo $$ >" + procs + ";"
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", o.shell + ` exec "$0" "$@"`, path}, args...)...)
	cmd.Env = append(os.Environ(), o.env...)
	a := &agent{url: "http://" + address, program: f.runCommand(o.name, cmd)}
	a.healthy, a.state = a.ready, a.pods
	a.watchHealth(t) //nolint:contextcheck // it runs until the instance is stopped
	must(t, a.awaitHealthy(ctx))
	if o.events {
		must(t, eventually(ctx, func() bool { return a.follows(ctx) }))
		must(t, sleepUntil(ctx, time.Now().Add(500*time.Millisecond))) // the new stream causes a list
		must(t, eventually(ctx, func() bool { return a.follows(ctx) }))
	}
	f.agents = append(f.agents, a)
}

// bothAgents are one agent that polls and one that follows the CRI events.
func bothAgents(o agentOptions) []agentOptions {
	polling, events := o, o
	polling.name = strings.TrimSpace(o.name + " polling")
	events.name, events.events = strings.TrimSpace(o.name+" events"), true
	return []agentOptions{polling, events}
}

// stopAgents ends the agents, which must exit with code 0 and without a data race.
func (f *fixture) stopAgents() {
	f.t.Helper()
	for _, a := range f.agents {
		if stderr := a.interrupt(f.t); strings.Contains(stderr, "DATA RACE") || strings.Contains(stderr, "panic") {
			f.t.Errorf("stderr of %s: %s", a.name, stderr)
		}
	}
}

func (f *fixture) signalAgents(sig syscall.Signal) {
	f.t.Helper()
	for _, a := range f.agents {
		must(f.t, a.cmd.Process.Signal(sig))
	}
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	return listener.Addr().String()
}

func (a *agent) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(request)
}

// ready returns the answer of /readyz, or an error if there is none.
func (a *agent) ready(ctx context.Context) (bool, error) {
	answer, err := a.get(ctx, "/readyz")
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK, nil
}

// follows reports whether the event stream is up and no list runs.
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

// pods returns the states that /pods reports. It repeats the names, because other
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

// changeContainers starts, ends and removes a container in each pod, and awaits
// each step.
func (f *fixture) changeContainers(ctx context.Context, attempt uint32) {
	f.t.Helper()
	f.runContainers(ctx, func(int) lab.ContainerSpec {
		return lab.ContainerSpec{Name: "side", Attempt: attempt, Program: lab.Exit(3)}
	})
	f.triggerAll(ctx)
	f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return removeDead(ctx, f.lab, newest(p)) })
}
