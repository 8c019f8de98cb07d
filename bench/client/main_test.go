package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

func startClient(t *testing.T, socket string) *probe.Child {
	t.Helper()
	t.Setenv(asClient, "1")
	client, err := probe.StartChild(t.Context(), os.Args[0], "-socket", socket, "-period", "20ms")
	kit.Must(t, err)
	t.Cleanup(client.Stop)
	return client
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
	client := startClient(t, socket)
	window := func(typ string, n int, change func()) (last probe.Report) {
		t.Helper()
		kit.Must(t, client.Call("Expect", map[string]int{typ: n}, nil))
		change() // what comes before is not counted
		kit.Must(t, client.Call("Wait", time.Minute, &last))
		if seen := last.Seen[typ]; !last.Done || len(last.Seen) != 1 || seen.Count != n || seen.LastMS < 0 || len(last.Log) != n {
			t.Errorf("report is %+v, want %d of %s", last, n, typ)
		}
		return last
	}
	window("ContainerStarted", pods*(containers+1), func() { kit.Must(t, client.Call("Start", nil, nil)) })
	if r := window("ContainerDied", pods*containers, func() { node.Burst(pods, simruntime.Exit) }); r.Usage.WallSeconds <= 0 || r.Usage.Allocs == 0 {
		t.Errorf("usage is %+v", r.Usage)
	}
}

func TestClientExplainsItsEnd(t *testing.T) {
	for socket, want := range map[string]string{"localhost:80": "is not a unix socket", "/no-such-socket": "no runtime at -socket"} {
		if err := startClient(t, socket).Call("Expect", nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", socket, err, want)
		}
	}
}
