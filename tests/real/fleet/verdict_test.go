package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The agent publishes the verdict of its node, within seconds after a change. A node without an
// agent gets a verdict too.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	var status atomic.Pointer[pleg.Status]
	well := pleg.Status{Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Pods: 7}}
	status.Store(&well)
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{health: func(context.Context) (pleg.Status, error) {
		if now := status.Load(); now != nil {
			return *now, nil
		}
		return pleg.Status{}, errors.New("no answer")
	}})
	startAgent(t, s.URL, "node-b", agentOptions{})
	states := func() []fleet.Node {
		nodes, err := openStates(t, s.URL).Nodes(t.Context())
		kit.Must(t, err)
		return nodes
	}
	shows := func(severity, cause, pod string) {
		t.Helper()
		began := time.Now()
		until(t, func() error {
			nodes := states()
			if len(nodes) != 2 || nodes[1].Verdict != nil {
				return fmt.Errorf("the nodes are %+v, want node-b without a verdict", nodes)
			}
			v := nodes[0].Verdict
			if v == nil || string(v.Severity) != severity || cause != "" && (string(v.Findings[0].Cause) != cause || v.Findings[0].Pod != pod) {
				return fmt.Errorf("the verdict is %+v, want %s: %s of %q", v, severity, cause, pod)
			}
			return nil
		})
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("%s: %s is known after %v", severity, cause, took)
		}
	}
	until(t, func() error { // an agent makes the bucket after the stream
		opened, err := fleet.OpenStates(t.Context(), jetStream(t, a.conn), cluster, "")
		if err == nil {
			_, err = opened.Nodes(t.Context())
		}
		return err
	})
	shows("ok", "", "")
	hangs := well
	hangs.Quarantined = []pleg.Quarantined{{UID: "u", Namespace: "shop", Name: "web-0", Since: time.Now().Add(-time.Minute), Hung: 3}}
	status.Store(&hangs)
	shows("problem", "hung container", "shop/web-0")
	status.Store(&well)
	shows("ok", "", "")
	status.Store(nil)
	shows("problem", "node silent", "")
	status.Store(&well)
	shows("ok", "", "")
	a.stop()
	shows("warning", "node silent", "") // the agent ended normally
}

// Each row of a pod says that its inspection hangs, or that nobody publishes for its node, and these
// rows come first. The command events prints the events of the last minutes.
func TestPodsCarryTheFinding(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	var status atomic.Pointer[pleg.Status]
	status.Store(&pleg.Status{Healthy: true, Relist: pleg.RelistStatus{Success: time.Now()}})
	startAgent(t, s.URL, "node-a", agentOptions{pods: 3, first: 3})
	b := startAgent(t, s.URL, "node-b", agentOptions{first: 5, health: func(context.Context) (pleg.Status, error) { return *status.Load(), nil }})
	silent := startAgent(t, s.URL, "node-c", agentOptions{pods: 3, first: 3})
	hung := pleg.Status{Healthy: true, At: time.Now(), Quarantined: []pleg.Quarantined{
		{UID: "new", Namespace: "shop", Name: "never-inspected", Since: time.Now().Add(-time.Minute), Hung: 3},
	}}
	for uid, pod := range b.node.Truth() {
		hung.Quarantined = append(hung.Quarantined, pleg.Quarantined{UID: uid, Namespace: pod.Namespace, Name: pod.Name, Since: time.Now().Add(-time.Minute), Hung: 3})
		break
	}
	hung.Relist.Success = time.Now()
	status.Store(&hung)
	place := []string{"--fleet", s.URL, "--cluster", cluster}
	var rows []string
	until(t, func() error {
		out, err := command(t, append([]string{"pods", "--no-headers"}, place...)...).Output()
		if err != nil || !strings.Contains(string(out), "node-a") || !strings.Contains(string(out), "node-c") || strings.Count(string(out), " hung ") < 2 {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	silent.stop()
	var said bytes.Buffer
	c := command(t, append([]string{"pods", "--no-headers"}, place...)...)
	c.Stderr = &said
	out, err := c.Output()
	kit.Must(t, err)
	if want := "pleg-pipeline: PROBLEM: 1 of 3 nodes; node-b: "; !strings.HasPrefix(said.String(), want) {
		t.Errorf("stderr %q, want %q", &said, want)
	}
	rows = strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, row := range rows {
		want := " hung "
		if _, of, _ := strings.Cut(row, "node-"); i >= 2 {
			want = map[bool]string{true: " silent ", false: " ready "}[of[0] == 'c']
		}
		if !strings.Contains(row, want) || i > 2 && strings.Contains(row, " silent ") && !strings.Contains(rows[i-1], " silent ") {
			t.Errorf("row %d is %q, want%sand pods of silent nodes after hung pods", i, row, want)
		}
	}
	out, err = command(t, append([]string{"pods", "--no-headers", "--sort-by", "name"}, place...)...).Output()
	if err != nil || !strings.HasPrefix(string(out), "node-a ") {
		t.Errorf("pods --sort-by name: %v\n%s\nwant node-a first, although pods of others hang", err, out)
	}
	out, err = command(t, append([]string{"events", "--since", "10m", "--follow=false", "-o", "json"}, place...)...).Output()
	if n := strings.Count(string(out), `"type":"ContainerStarted"`); err != nil || n == 0 {
		t.Errorf("%d events of the last 10 minutes, %v\n%s", n, err, out)
	}
}
