package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// asClient lets the test binary be the client.
const asClient = "BENCH_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func startClient(t *testing.T, socket string) (ask func(probe.Command) (probe.Report, error)) {
	t.Helper()
	t.Setenv(asClient, "1")
	client, err := probe.StartChild(t.Context(), os.Args[0], "-socket", socket, "-period", "20ms")
	kit.Must(t, err)
	t.Cleanup(client.Stop)
	return func(c probe.Command) (r probe.Report, err error) { return r, client.Ask(c, &r) }
}

// The client sees the existing pods, and then a burst, each in its window.
func TestClientMeasuresBurst(t *testing.T) {
	const pods, containers = 6, 2
	node, err := simruntime.New(simruntime.Options{})
	kit.Must(t, err)
	if _, err := node.Populate(simruntime.Population{Pods: pods, Containers: containers}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	kit.Must(t, err)
	kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, listener) })
	ask := startClient(t, socket)
	do := func(c probe.Command) probe.Report {
		t.Helper()
		r, err := ask(c)
		if err != nil || r.Err != "" {
			t.Fatalf("%s: %v, %s", c.Do, err, r.Err)
		}
		return r
	}
	window := func(typ string, n int, change func()) probe.Report {
		t.Helper()
		do(probe.Command{Do: probe.ExpectEvents, Want: map[string]int{typ: n}})
		change() // what comes before is not counted
		last := do(probe.Command{Do: probe.WaitForEvents, TimeoutMS: 60_000})
		if seen := last.Seen[typ]; !last.Done || len(last.Seen) != 1 || seen.Count != n || seen.LastMS < 0 || len(last.Log) != n {
			t.Errorf("report is %+v, want %d of %s", last, n, typ)
		}
		return last
	}
	window("ContainerStarted", pods*(containers+1), func() { do(probe.Command{Do: probe.StartCandidate}) })
	if r := window("ContainerDied", pods*containers, func() { node.Burst(pods, simruntime.Exit) }); r.Usage.WallSeconds <= 0 || r.Usage.Allocs == 0 {
		t.Errorf("usage is %+v", r.Usage)
	}
}

func TestClientExplainsItsEnd(t *testing.T) {
	for socket, want := range map[string]string{"localhost:80": "is not a unix socket", "/no-such-socket": "no runtime at -socket"} {
		if _, err := startClient(t, socket)(probe.Command{Do: probe.ExpectEvents}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", socket, err, want)
		}
	}
}
