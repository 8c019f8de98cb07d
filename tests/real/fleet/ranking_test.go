package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

// troubles are what happens to nodes, in the order in which doctor --fleet ranks them.
var troubles = []struct {
	name  string
	flags []string // of the simulated runtime
	begin func(runtime *process.Process, socket string) error
	want  string // severity, cause and pod
}{
	{"hung shim", []string{"--fault", "ContainerStatus/hang", "--fault-pod", "shop/web-0"}, nil, "problem, hung container, shop/web-0"},
	{"silent", nil, nil, "problem, node silent, "},
	{"SIGSTOP", nil, func(p *process.Process, _ string) error { return p.Pause() }, "problem, runtime hangs, "},
	{"SIGKILL", nil, func(p *process.Process, _ string) error { p.Kill(); return nil }, "problem, runtime stopped, "},
	{"no socket", nil, func(p *process.Process, socket string) error {
		p.Kill()
		return os.Remove(socket)
	}, "problem, runtime stopped, "},
	{"slow", []string{"--fault", "ListContainers/slow"}, nil, "warning, runtime slow, "},
	{"well", nil, nil, "ok, , "},
}

// watchRuntime starts a simulated runtime and a pipeline on it.
func watchRuntime(t *testing.T, flags []string) (runtime *process.Process, socket string, status func(context.Context) (pleg.Status, error)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ranking") //nolint:usetesting // short: the path of a socket is limited
	kit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	args := append([]string{"simulate", "--socket", socket, "--pods", "10", "--churn-rate", "0"}, flags...)
	if runtime, err = process.Start(command(t, args...), filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Kill)
	until(t, func() error {
		kit.Must(t, runtime.Alive())
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	client, err := cri.New("unix://"+socket, cri.Options{})
	kit.Must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	p, err := pipeline.New(pipeline.Options{Runtime: client})
	kit.Must(t, err)
	kit.Run(t, p.Run)
	until(t, func() error {
		if p.Status().Relist.Success.IsZero() {
			return errors.New("no list has succeeded")
		}
		return nil
	})
	return runtime, socket, func(context.Context) (pleg.Status, error) { return p.Status(), nil }
}

// ranked is one node of a report.
type ranked struct {
	Node, Severity string
	Findings       []struct {
		Cause, Pod string
		Since      time.Time
	}
}

// says returns the severity, the cause and the pod.
func (r ranked) says() string {
	cause, pod := "", ""
	if len(r.Findings) > 0 {
		cause, pod = r.Findings[0].Cause, r.Findings[0].Pod
	}
	return r.Severity + ", " + cause + ", " + pod
}

// rank returns what doctor --fleet says of each node, in its order.
func rank(t *testing.T, url string) (nodes []ranked, took time.Duration) {
	t.Helper()
	began := time.Now()
	out, err := command(t, "doctor", "--fleet", url, "--cluster", cluster, "-o", "json").Output()
	took = time.Since(began)
	var report struct{ Nodes []ranked }
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil {
		t.Fatal(err, jsonErr)
	}
	return report.Nodes, took
}

// Five hundred nodes, some with trouble of real processes, are ranked within seconds. The nodes with
// one kind of trouble share a runtime and a pipeline, but each has an agent.
func TestManyNodesAreRanked(t *testing.T) {
	t.Parallel()
	const nodes, ofEach = 500, 10
	s := startServer(t, "")
	var conns []*nats.Conn
	for range 5 {
		conns = append(conns, connect(t, s.URL))
	}
	began := time.Now()
	want := make(map[string]string)
	var agents []*agent
	for i, trouble := range troubles {
		runtime, socket, status := watchRuntime(t, trouble.flags)
		number := ofEach
		if i == len(troubles)-1 {
			number = nodes - i*ofEach
		}
		for range number {
			name := fmt.Sprintf("node-%03d", len(agents))
			want[name] = trouble.want
			agents = append(agents, startAgent(t, s.URL, name, agentOptions{
				pods: 1, first: 1, discard: true, conn: conns[len(agents)%len(conns)], health: status,
			}))
		}
		if trouble.begin != nil {
			kit.Must(t, trouble.begin(runtime, socket))
		}
	}
	until(t, func() error {
		if all, _ := rank(t, s.URL); len(all) < nodes {
			return fmt.Errorf("%d nodes", len(all))
		}
		return nil
	})
	for _, a := range agents[ofEach : 2*ofEach] {
		a.stop()
	}
	until(t, func() error {
		all, took := rank(t, s.URL)
		for i, n := range all {
			kind := troubles[min(i/ofEach, len(troubles)-1)]
			if n.says() != kind.want || want[n.Node] != kind.want {
				return fmt.Errorf("%d is %s: %q, want %q: %s", i, n.Node, n.says(), kind.want, kind.name)
			}
			if i < 5*ofEach && n.Findings[0].Since.Before(began) { // the slow one has no age
				t.Errorf("%+v, %v after the start", n, time.Since(began))
			}
		}
		if t.Logf("doctor --fleet took %v", took); took > 5*time.Second {
			t.Errorf("doctor --fleet took %v", took)
		}
		return nil
	})
	t.Logf("all verdicts %v after the start", time.Since(began))
}
