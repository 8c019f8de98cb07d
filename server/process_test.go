package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

const processPods = 50

// These tests use real processes and sockets, and so real time: whatever they
// wait for they wait for as long as the test may take.

// newSocketBed serves on a socket, and relists all the time.
func newSocketBed(t *testing.T, o server.Options) (b *bed, socket string, registry *prometheus.Registry) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "pleg.sock")
	l, err := server.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	registry = prometheus.NewPedanticRegistry()
	b = newBedOn(t, pipeline.Options{RelistPeriod: time.Millisecond, Registerer: registry, Inspectors: processPods}, o, l)
	b.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return b, socket, registry
}

// follow watches by the client package, and returns how to wait for an event of
// each pod about one container.
func (b *bed) follow(socket string) (waitFor func(pleg.ContainerID)) {
	b.Helper()
	c, err := client.New(socket, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan pleg.Event)
	go func() {
		defer close(events)
		for ev, err := range c.Watch(ctx, client.WatchOptions{Name: "follower", Replay: true, Buffer: 4096}) {
			if err != nil {
				b.Error(err)
			}
			select {
			case events <- ev:
			case <-ctx.Done():
			}
		}
	}()
	b.Cleanup(func() {
		cancel()
		for range events {
		}
		c.Close()
	})
	return func(id pleg.ContainerID) {
		b.Helper()
		for pods := 0; pods < processPods; {
			ev, ok := <-events
			if !ok || ev.Missed > 0 {
				b.Fatalf("waiting for %s: %+v, %v", id, ev, ok)
			}
			if ev.ContainerID == id && ev.Type == pleg.ContainerStarted {
				pods++
			}
		}
	}
}

// childWatch starts a watching process; its lines end when it does.
func childWatch(t *testing.T, socket string) (process *os.Process, lines *bufio.Scanner) {
	t.Helper()
	cmd := roleCommand(t, roleWatch, socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return cmd.Process, bufio.NewScanner(out)
}

func seek(t *testing.T, lines *bufio.Scanner, what string, found func(string) bool) {
	t.Helper()
	for lines.Scan() {
		if found(lines.Text()) {
			return
		}
	}
	t.Fatalf("the child ended before %s", what)
}

func subscriberValue(t *testing.T, from prometheus.Gatherer, name, subscriber string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == subscriber {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// A client process that is stopped loses events and nothing else: others get
// all of theirs meanwhile, and it gets its repairs once it goes on.
func TestStoppedProcess(t *testing.T) {
	b, socket, registry := newSocketBed(t, server.Options{})
	process, lines := childWatch(t, socket)
	seek(t, lines, "Synced", func(line string) bool { return strings.HasPrefix(line, "Synced") })
	waitFor := b.follow(socket)
	if err := process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	for ; subscriberValue(t, registry, "pleg_subscriber_discarded_events_total", "child") < processPods; rounds++ {
		id := fmt.Sprintf("c%d", rounds)
		b.node.Fill(processPods, id+"=running")
		waitFor(pleg.ContainerID(id)) // or the test does not end
	}
	t.Logf("after %d rounds of %d pods the stopped process has missed events", rounds, processPods)
	if err := process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	seek(t, lines, "a repair", func(line string) bool {
		return strings.HasPrefix(line, "PodSync") && !strings.HasSuffix(line, " 0")
	})
	b.node.Fill(processPods, "last=running")
	waitFor("last")
	seek(t, lines, "the last event of a pod", func(line string) bool {
		return strings.Contains(line, " last ") || strings.HasPrefix(line, "PodSync")
	})
}

// A process that is killed leaves no subscriber behind.
func TestKilledProcess(t *testing.T) {
	b, socket, registry := newSocketBed(t, server.Options{})
	waitFor := b.follow(socket)
	var children []*os.Process
	for range 3 {
		process, lines := childWatch(t, socket)
		seek(t, lines, "Synced", func(line string) bool { return strings.HasPrefix(line, "Synced") })
		children = append(children, process)
	}
	b.node.Fill(processPods, "c0=running")
	waitFor("c0")
	if n := value(t, registry, "pleg_subscribers"); n != 4 {
		t.Errorf("%v subscribers, want 4", n)
	}
	for _, process := range children {
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for value(t, registry, "pleg_subscribers") != 1 {
		<-ticker.C // or the test does not end
	}
	b.node.Fill(processPods, "c1=running")
	waitFor("c1")
}

// Thousands of connections that say nothing are all turned away, and who was
// there before does not notice.
func TestThousandsOfConnections(t *testing.T) {
	const connections = 3000
	b, socket, _ := newSocketBed(t, server.Options{MaxConnections: 8})
	waitFor := b.follow(socket)
	b.node.Fill(processPods, "c0=running")
	waitFor("c0")
	var reading sync.WaitGroup
	for i := range connections {
		conn, err := b.dial(t.Context(), "")
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		reading.Go(func() {
			defer conn.Close()
			// It is the server that has to end it.
			if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	b.node.Fill(processPods, "c1=running")
	waitFor("c1")
	reading.Wait()
	b.follow(socket)("c1")
}
