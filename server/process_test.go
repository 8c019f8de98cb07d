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

	"golang.org/x/sys/unix"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const processPods = 50

// These tests use real processes and sockets, and therefore real time. They wait as long
// as the test may take.

// quick relists every millisecond.
var quick = pipeline.Options{RelistPeriod: time.Millisecond, Inspectors: processPods}

func newSocketFixture(t testing.TB, p pipeline.Options, o server.Options) (f *fixture, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "pleg.sock")
	l, err := server.Listen(t.Context(), socket)
	kit.Must(t, err)
	f = newFixtureOn(t, p, o, l)
	f.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return f, socket
}

func newClient(t testing.TB, socket string) *client.Client {
	t.Helper()
	c, err := client.New(socket, client.Options{})
	kit.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// follow watches with the client package. waitFor waits for the start of one container in
// each pod.
func (f *fixture) follow(socket string) (waitFor func(pleg.ContainerID)) {
	f.Helper()
	c := newClient(f, socket)
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan pleg.Event)
	go func() {
		defer close(events)
		for ev, err := range c.Watch(ctx, client.WatchOptions{Name: "follower", Replay: true}) {
			if err != nil {
				f.Error(err)
			}
			select {
			case events <- ev:
			case <-ctx.Done():
			}
		}
	}()
	f.Cleanup(func() {
		cancel()
		for range events {
		}
	})
	return func(id pleg.ContainerID) {
		f.Helper()
		for pods := 0; pods < processPods; {
			ev, ok := <-events
			if !ok || ev.Missed > 0 {
				f.Fatalf("waiting for %s: %+v, %v", id, ev, ok)
			}
			if ev.ContainerID == id && ev.Type == pleg.ContainerStarted {
				pods++
			}
		}
	}
}

// child starts a process that prints what it does.
func child(t *testing.T, role, socket string) (process *os.Process, lines *bufio.Scanner) {
	t.Helper()
	cmd := roleCommand(t, role, socket)
	out, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, cmd.Start())
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

// The log moves past a stopped client process, and it gets a Gap once it continues. Other
// clients get all events meanwhile.
func TestStoppedProcess(t *testing.T) {
	short := quick
	short.History = 1000
	f, socket := newSocketFixture(t, short, server.Options{})
	process, lines := child(t, roleWatch, socket)
	seek(t, lines, "Synced", func(line string) bool { return strings.HasPrefix(line, "Synced") })
	waitFor := f.follow(socket)
	kit.Must(t, process.Signal(unix.SIGSTOP))
	rounds := 0
	for ; kit.Metric(t, f.Metrics, "pleg_subscriber_lag_events", "child") <= float64(short.History); rounds++ {
		id := fmt.Sprintf("c%d", rounds)
		kit.Fill(f.Runtime, processPods, id+"=running")
		waitFor(pleg.ContainerID(id)) // or the test does not end
	}
	t.Logf("after %d rounds of %d pods the log has moved past the stopped process", rounds, processPods)
	kit.Must(t, process.Signal(unix.SIGCONT))
	seek(t, lines, "a Gap", func(line string) bool {
		return strings.HasPrefix(line, "Gap") && !strings.HasSuffix(line, " 0")
	})
	kit.Fill(f.Runtime, processPods, "last=running")
	waitFor("last")
	seek(t, lines, "the last event of a pod", func(line string) bool { return strings.Contains(line, " last ") })
}

// The subscriber of a killed process is removed.
func TestKilledProcess(t *testing.T) {
	f, socket := newSocketFixture(t, quick, server.Options{})
	waitFor := f.follow(socket)
	var children []*os.Process
	for range 3 {
		process, lines := child(t, roleWatch, socket)
		seek(t, lines, "Synced", func(line string) bool { return strings.HasPrefix(line, "Synced") })
		children = append(children, process)
	}
	kit.Fill(f.Runtime, processPods, "c0=running")
	waitFor("c0")
	if n := kit.Metric(t, f.Metrics, "pleg_subscribers"); n != 4 {
		t.Errorf("%v subscribers, want 4", n)
	}
	for _, process := range children {
		kit.Must(t, process.Kill())
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for kit.Metric(t, f.Metrics, "pleg_subscribers") != 1 {
		<-ticker.C // or the test does not end
	}
	kit.Fill(f.Runtime, processPods, "c1=running")
	waitFor("c1")
}

// Thousands of idle connections are refused; existing clients miss nothing.
func TestThousandsOfConnections(t *testing.T) {
	const connections = 3000
	f, socket := newSocketFixture(t, quick, server.Options{MaxConnections: 8, Keepalive: 2 * time.Second})
	waitFor := f.follow(socket)
	kit.Fill(f.Runtime, processPods, "c0=running")
	waitFor("c0")
	var reading sync.WaitGroup
	for i := range connections {
		conn, err := f.dial(t.Context(), "")
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		reading.Go(func() {
			defer conn.Close()
			// The server must close it.
			if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	kit.Fill(f.Runtime, processPods, "c1=running")
	waitFor("c1")
	reading.Wait()
	f.follow(socket)("c1")
}

// A client that does not answer pings loses its connection; an idle client that answers
// them keeps it.
func TestKeepalive(t *testing.T) {
	// The beginning of an HTTP/2 connection: preface and empty SETTINGS.
	const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	inBubble(t, pipeline.Options{}, server.Options{Keepalive: 20 * time.Second}, func(t *testing.T, f *fixture) {
		quiet := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		dead, err := f.dial(t.Context(), "")
		kit.Must(t, err)
		defer dead.Close()
		if _, err := dead.Write([]byte(hello)); err != nil {
			t.Fatal(err)
		}
		kit.Relist(10)
		if n := kit.Metric(t, f.Metrics, "pleg_server_connections"); n != 2 {
			t.Errorf("after 10 s: %v connections, want 2", n)
		}
		kit.Relist(50)
		if n := kit.Metric(t, f.Metrics, "pleg_server_connections"); n != 1 {
			t.Errorf("after a minute: %v connections, want 1", n)
		}
		f.wantEvent("the idle client", quiet)
	})
}
