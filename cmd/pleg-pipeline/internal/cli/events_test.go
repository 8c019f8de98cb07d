package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// socketPath returns a path at which a daemon can create a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "pleg.sock")
}

// decode returns the events of a JSON output.
func decode(t *testing.T, text string) []pleg.Event {
	t.Helper()
	var all []pleg.Event
	for line := range strings.Lines(text) {
		var ev pleg.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, ev)
	}
	return all
}

func TestEventsReplayOfDaemon(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	startDaemon(t, socket)
	out := newTranscript()
	s := start(t, out, "events", "--connect", socket, "--replay", "--no-sandboxes", "-o", "json")
	out.await(t, "Synced")
	s.stopAndWait(t)
	all := decode(t, out.String())
	if len(all) != 5 { // two pods of two containers
		t.Errorf("%d events, want 4 and one Synced:\n%s", len(all), out)
	}
	for _, ev := range all[:len(all)-1] {
		if ev.Type != pleg.ContainerStarted || ev.Sandbox || !ev.Replayed {
			t.Errorf("event %+v, want a replayed start of a container", ev)
		}
	}
	position := regexp.MustCompile(`context canceled: to continue, use --since ([0-9a-f]{16}:[0-9]+)\n`).FindStringSubmatch(s.stderr.String())
	if position == nil {
		t.Fatalf("stderr = %q, want a position", s.stderr)
	}

	again := newTranscript()
	s = startIn(t, with(map[string]string{"PLEG_PIPELINE_SOCKET": socket}), again, "events", "--since", position[1], "-o", "json")
	again.await(t, "Synced")
	s.stopAndWait(t)
	if all := decode(t, again.String()); len(all) != 1 {
		t.Errorf("events after the last position = %v, want only a Synced", all)
	}
}

// TestEventsSaysWhatIsMissing asks for events from before the daemon began, and for a pod that does not
// exist.
func TestEventsSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	startDaemon(t, socket)
	for args, want := range map[string]string{
		"--since 1000h --follow=false":      "the daemon has events since 20",
		"--pod nosuch":                      "no pod has the name nosuch; waiting for one",
		"-n nosuch":                         "no pod is in the namespace nosuch; waiting for one",
		"--replay --follow=false --pod no ": "no pod has the name no",
	} {
		out := newTranscript()
		s := start(t, out, append([]string{"events", "--connect", socket}, strings.Fields(args)...)...)
		s.stderr.await(t, want)
		if !strings.Contains(args, "--follow=false") {
			s.stopAndWait(t)
		}
	}
	p := newProcess(t, "events", "--connect", socket, "--since", "1h", "--follow=false")
	p.cmd.Env = append(p.cmd.Env, "TZ=Asia/Kathmandu")
	if zone, err := time.LoadLocation("Asia/Kathmandu"); err == nil {
		kit.Must(t, p.cmd.Run())
		text := strings.TrimPrefix(p.stderr.String(), "pleg-pipeline: the daemon has events since ")
		if at, err := time.ParseInLocation(time.DateTime, text[:min(len(text), len(time.DateTime))], zone); err != nil || time.Since(at) > 10*time.Minute {
			t.Errorf("stderr %q, want the time in the zone of the user", p.stderr)
		}
	}
	out := newTranscript()
	s := start(t, out, "events", "--connect", socket, "--since", "0s", "--replay", "-A")
	out.await(t, "Synced")
	s.stopAndWait(t)
	if text := s.stderr.String(); strings.Contains(text, "events since") || strings.Contains(text, "waiting for one") {
		t.Errorf("nothing is missing: %s", text)
	}
}

// TestEventsOwnPipelineStartsNow checks that the pods of the first list, five with
// two containers and a sandbox each, cause no events, and that only wanted events are printed.
func TestEventsOwnPipelineStartsNow(t *testing.T) {
	t.Parallel()
	out := newTranscript()
	s := start(t, out, "events", "-r", simulated(t, 5, "--churn-rate", "50"), "--type", "ContainerStarted,ContainerRemoved", "-o", "json", "--no-sandboxes")
	out.await(t, string(pleg.ContainerRemoved))
	s.stopAndWait(t)
	for _, ev := range decode(t, out.String()) {
		if ev.Type == pleg.Synced { // after a broken connection, on a busy machine
			continue
		}
		if ev.Type != pleg.ContainerStarted && ev.Type != pleg.ContainerRemoved || ev.Sandbox || ev.ContainerName == "" || ev.PodNamespace == "" {
			t.Errorf("event %+v, want the start or the removal of a container", ev)
		}
		if ev.Seq <= 15 || ev.Replayed {
			t.Errorf("event %+v, want events after the 15 of the first list", ev)
		}
	}
	if strings.Contains(s.stderr.String(), "--since") {
		t.Errorf("stderr = %q, want no position: no process can resume after it", s.stderr)
	}
}

func TestEventsSurviveRestartOfDaemon(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	d := startDaemon(t, socket)
	out := newTranscript()
	s := start(t, out, "events", "--connect", socket, "--replay", "-o", "json")
	out.await(t, "Synced")
	d.stopAndWait(t)
	s.stderr.await(t, "waiting for the daemon: ")
	closeConnections(t, socket, 3)
	startDaemon(t, socket)
	s.stderr.await(t, "connected to the daemon: events are missing: the daemon was restarted")
	out.await(t, "OtherEpoch")
	s.stopAndWait(t)
	if got := strings.Count(s.stderr.String(), "waiting for the daemon: "); got != 1 {
		t.Errorf("%d notices about the disconnection, want 1:\n%s", got, s.stderr)
	}
	if got := strings.Count(s.stderr.String(), "connected to the daemon: "); got != 1 {
		t.Errorf("%d notices about the connection, want 1:\n%s", got, s.stderr)
	}
}

// The state after a Gap ends with Synced, also in a watch from now on. The first Synced of such a watch is not
// printed.
func TestSyncedAfterAReconnection(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	daemon := func() *runningCommand {
		s := start(t, newTranscript(), "run", "--simulate=2", "--churn-rate", "100", "--quiet", "--socket", socket, "-v", "warn")
		t.Cleanup(func() { s.stopAndWait(t) })
		s.stderr.await(t, "connected to")
		return s
	}
	d, out := daemon(), newTranscript()
	s := start(t, out, "events", "--connect", socket, "-o", "json")
	out.await(t, "Container")
	d.stopAndWait(t)
	s.stderr.await(t, "waiting for the daemon: ")
	if strings.Contains(out.String(), "Synced") {
		t.Errorf("a Synced before the disconnection:\n%s", out)
	}
	daemon()
	out.await(t, "OtherEpoch")
	out.await(t, "Synced")
	s.stopAndWait(t)
}

// Without a daemon, the pipeline of the command has no position at which another could continue.
func TestEventsWithoutADaemon(t *testing.T) {
	t.Parallel()
	p := cli.Process{Sockets: []string{simulated(t, 1, "--churn-rate", "50")}, Dial: func(context.Context, string) (net.Conn, error) { return nil, syscall.ENOENT }}
	out := newTranscript()
	s := startIn(t, p, out, "events")
	out.await(t, "Container")
	s.stopAndWait(t)
	const alone = "pleg-pipeline: there is no daemon at /run/pleg-pipeline/pleg.sock: running a pipeline in this process\n"
	if text := s.stderr.String(); !strings.Contains(text, alone) || strings.Contains(text, "--since") {
		t.Errorf("stderr = %q, want no position", text)
	}
}

// A watch of a pod without events still ends with its cause and a position from which little has to be read again.
func TestPositionOfAQuietWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := serveHostile(t, "", &hostile.Daemon{OnWatch: func(r *plegv1.WatchRequest, stream hostile.WatchStream) error {
			if name := r.GetName(); name != "pleg-pipeline-events" {
				t.Errorf("the subscriber is %q", name)
			}
			events := []*plegv1.Event{{Epoch: "e", Seq: 1, Type: plegv1.EventType_EVENT_TYPE_SYNCED}}
			if r.GetBookmarks() {
				events = append(events, &plegv1.Event{Epoch: "e", Seq: 90, Type: plegv1.EventType_EVENT_TYPE_BOOKMARK})
			}
			return hostile.Events(events...)(r, stream)
		}})
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { end(errors.New("hangup signal received")) })
		said := newTranscript()
		code := cli.Execute(ctx, cli.Process{Args: strings.Fields("events --pod shop/web-0 --connect socket"), Dial: dial, Out: io.Discard, Err: said})
		if code != cli.ExitOK || !strings.HasSuffix(said.String(), ": hangup signal received: to continue, use --since e:90\n") {
			t.Errorf("exit code %d, stderr %q", code, said)
		}
	})
}

// The names of pods alone have no marks between them.
func TestNamesWithoutMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := serveHostile(t, "", &hostile.Daemon{OnWatch: hostile.Events(
			&plegv1.Event{Epoch: "e", Seq: 1, Type: plegv1.EventType_EVENT_TYPE_GAP},
			&plegv1.Event{Epoch: "e", Seq: 2, Type: plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED, PodUid: "u1", PodNamespace: "bank", PodName: "web-0"},
			&plegv1.Event{Epoch: "e", Seq: 3, Type: plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED, PodUid: "u2", PodNamespace: "shop", PodName: "web-0"},
			&plegv1.Event{Epoch: "e", Seq: 3, Type: plegv1.EventType_EVENT_TYPE_SYNCED},
		)})
		out := newTranscript()
		s := startIn(t, cli.Process{Dial: dial}, out, "events", "--replay", "-o", "name", "--pod", "shop/web-0", "--connect", "socket")
		synctest.Wait()
		s.stopAndWait(t)
		if out.String() != "shop/web-0\n" {
			t.Errorf("stdout %q, want the name of the pod alone", out)
		}
	})
}

// The events that a fleet replays have a node's position, and none of the fleet.
func TestPositionAfterAnEvent(t *testing.T) {
	of := pleg.Event{Epoch: "e", Seq: 7}
	for want, ev := range map[string]fleet.Event{
		"e:7": {Event: of},
		"n:9": {Event: of, Node: "n1", At: "n:9"},
		"":    {Event: of, Node: "n1"},
	} {
		if got := cli.PositionAfter(ev); got != want {
			t.Errorf("after %+v: %q, want %q", ev, got, want)
		}
	}
}

// closeConnections accepts n connections in place of a daemon, and closes them.
func closeConnections(t *testing.T, socket string, n int) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	kit.Must(t, err)
	defer l.Close()
	for range n {
		conn, err := l.Accept()
		kit.Must(t, err)
		_ = conn.Close()
	}
}

// Each flag for a cluster is an option of its watch. However many messages cannot be read, one notice says so.
func TestWatchOfACluster(t *testing.T) {
	const at = "18a5b5b0c2a7e400:120:18a5b5b1d0a7e400"
	shop := pleg.Filter{Namespaces: []string{"shop"}, OmitSandboxes: true}
	for flags, want := range map[string]fleet.WatchOptions{
		"--replay": {Replay: true},
		"--nats-stream mirror --node n1,n2 -n shop --no-sandboxes --since " + at: {Stream: "mirror", Nodes: []string{"n1", "n2"}, Filter: shop, After: new(fleet.Position(at))},
		"--since 1h": {Since: time.Now().Add(-time.Hour)},
	} {
		said := newTranscript()
		got, err := cli.WatchOptionsOf(said, strings.Fields("--fleet nats://h --cluster c "+flags)...)
		kit.Must(t, err)
		got.Unreadable(errors.New("broken"))
		got.Unreadable(errors.New("broken"))
		if text := said.String(); text != "pleg-pipeline: broken; this and other messages that this program cannot read are skipped\n" || got.Disconnected == nil {
			t.Errorf("%s: said %q", flags, text)
		}
		if got.Since.Sub(want.Since).Abs() < time.Minute {
			want.Since = got.Since
		}
		want.Cluster, want.Bookmarks, got.Unreadable, got.Disconnected = "c", true, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", flags, got, want)
		}
	}
}
