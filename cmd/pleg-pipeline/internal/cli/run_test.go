package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func readUntil(t *testing.T, r *bufio.Reader, wanted func(string) bool) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("the output ended early: %v", err)
		}
		if wanted(line) {
			return line
		}
	}
}

// TestRunPrintsJSON prints events, log lines and notices as JSON.
func TestRunPrintsJSON(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, strings.Fields("run -r replay:testdata/restart.jsonl -o json --log-format json -v debug")...)
	for line := range strings.Lines(stdout + stderr) {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %q, want JSON", line)
		}
	}
	for want, text := range map[string]string{
		`"type":"ContainerDied"`:                 stdout,
		`"msg":"connected to test 1 at unix:///`: stderr,
		`"msg":"the recording has ended after [0-9.]+m?s: [1-9][0-9]* relists, 5 events, 0 missed by subscribers"`: stderr,
	} {
		if code != cli.ExitOK || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("exit code %d, %q, want a match of %q", code, text, want)
		}
	}
}

func TestRunPrintsText(t *testing.T) {
	t.Parallel()
	for _, headers := range []bool{true, false} {
		out := newTranscript()
		s := start(t, out, "run", "--simulate=1", "--churn-rate", "0", fmt.Sprintf("--no-headers=%v", !headers))
		out.await(t, "(sandbox)")
		s.stopAndWait(t)
		if strings.HasPrefix(out.String(), "TIME ") != headers || strings.Contains(out.String(), "NAMESPACE") != headers || strings.Contains(out.String(), "\x1b") {
			t.Errorf("output = %q, want a header: %v, and no colours", out, headers)
		}
		lines := map[bool]int{false: 3, true: 4}[headers]
		if got := strings.Count(out.String(), string(pleg.ContainerStarted)); got != 3 || strings.Count(out.String(), "\n") != lines {
			t.Errorf("%d ContainerStarted of a pod of two containers, want 3 and nothing else:\n%s", got, out)
		}
	}
}

// TestEndsWhenTheReaderOfAQuietNodeCloses closes the output while nothing is written.
func TestEndsWhenTheReaderOfAQuietNodeCloses(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	startDaemon(t, socket)
	for args, last := range map[string]string{
		"run --simulate=1 --churn-rate 0 --relist-period 1h --relist-threshold 2h": "(sandbox)",
		"events --replay --connect " + socket:                                      "Synced",
	} {
		r, w, err := os.Pipe()
		kit.Must(t, err)
		defer w.Close()
		s := start(t, w, strings.Fields(args)...)
		readUntil(t, bufio.NewReader(r), func(line string) bool { return strings.Contains(line, last) })
		threads, err := os.ReadDir("/proc/self/task")
		kit.Must(t, err)
		for _, thread := range threads { // as Go's scheduler does, and a terminal that is resized
			id, err := strconv.Atoi(thread.Name())
			kit.Must(t, err)
			_ = unix.Tgkill(os.Getpid(), id, unix.SIGURG) // a thread may have ended
		}
		_ = r.Close()
		s.ends(t, cli.ExitOK)
		if strings.Contains(s.stderr.String(), "nobody reads") {
			t.Errorf("%s: stderr = %q, want no wait for a reader that has gone", args, s.stderr)
		}
	}
}

// A simulated runtime needs a folder for its socket, whose path must not be long.
func TestNoPrivateSocket(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	kit.Must(t, os.Mkdir(long, 0o700))
	for dir, why := range map[string]string{"/none": "stat /none: no", long: "listen unix " + long} {
		t.Setenv("TMPDIR", dir)
		if code, _, stderr := run(t, "run", "--simulate=1"); code != cli.ExitFailure || !strings.Contains(stderr, "\npleg-pipeline: create a socket: "+why) {
			t.Errorf("exit code %d, stderr %q, want %q", code, stderr, why)
		}
	}
	if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
}

// What serves a command ends after the command, and its error is the cause of the command's end.
func TestServersOutliveTheirClients(t *testing.T) {
	failed := errors.New("broken")
	for name, fails := range map[string]error{"the command is stopped": nil, "a server fails": failed} {
		kit.Bubble(t, name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			ended := false
			err := cli.WhileRunning(ctx, func(ctx context.Context) error {
				if fails == nil {
					stop()
				}
				<-ctx.Done()
				synctest.Wait()
				if ended {
					t.Error("a server ends before its client")
				}
				return context.Cause(ctx)
			}, func(ctx context.Context) error {
				<-ctx.Done()
				ended = true
				return nil
			}, func(context.Context) error { return fails })
			if stop(); !ended || !errors.Is(err, failed) != (fails == nil) {
				t.Errorf("%v, and the server has ended: %v", err, ended)
			}
		})
	}
}

// TestEndsWhenNobodyReads stops commands whose output is blocked.
func TestEndsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"run --simulate=1", "events --replay -r " + simulated(t, 1)} {
		r, w := io.Pipe()
		s := start(t, w, strings.Fields(args)...)
		if _, err := r.Read(make([]byte, 1)); err != nil { // the write of the remaining bytes blocks
			t.Fatal(err)
		}
		s.stopAndWait(t)
		if want := "pleg-pipeline: nobody reads the output: the rest of it is lost\n"; !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%s: stderr = %q, want %q", args, s.stderr, want)
		}
		_ = r.Close() // ends the blocked write
	}
}

// open sends a request and returns the response, whose body may be endless.
func open(t *testing.T, url string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	kit.Must(t, err)
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	kit.Must(t, err)
	return answer
}

// get returns the response to a request.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	answer := open(t, url)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	kit.Must(t, err)
	return answer.StatusCode, string(body)
}

// TestRunServesHTTP opens listeners for this machine, for others and for probes, with and without a
// web configuration. A row lists paths of the page's listener, of the health listener (H), and of
// the health listener for another machine (O). That machine must not learn the names of servers and
// pods.
func TestRunServesHTTP(t *testing.T) {
	t.Parallel()
	const first = "^pleg-pipeline: the runtime is simulated: 1 pods, 0 changes/s, seed 1\npleg-pipeline: "
	dir := t.TempDir()
	password, plain := filepath.Join(dir, "password"), filepath.Join(dir, "plain")
	kit.Must(t, os.WriteFile(password, []byte("basic_auth_users: {jo: $2a$04$oulzlyBHABGVms2WBELgwuPaHoiFSNNrzT7pYv2440S2lbW84d4x6}\n"), 0o600))
	kit.Must(t, os.WriteFile(plain, []byte("http_server_config: {http2: false}\n"), 0o600))
	for _, test := range []struct {
		args    string
		said    string   // matches all that is said first
		answers []string // path, code and a part of the body
	}{
		{"--listen 0 --health-listen 0.0.0.0:0 --node n1 --otlp http://127.0.0.1:1 --nats nats://127.0.0.1:1 --cluster c --socket " + filepath.Join(dir, "pleg.sock"), first + `serving a page, metrics, health, pods and events on http://127\.0\.0\.1:\d+
pleg-pipeline: serving health for probes on http://\S+:\d+
pleg-pipeline: serving pods and events on (/\S+/pleg\.sock); to see them: pleg-pipeline events --connect /\S+/pleg\.sock
pleg-pipeline: connected to simruntime 0\.1\.0 at unix:///\S+/cri\.sock
pleg-pipeline: publishing as node n1 of cluster c; to see the events: pleg-pipeline events --fleet nats://127.0.0.1:1 --cluster c
pleg-pipeline: exporting OpenTelemetry logs as node n1 to http://127.0.0.1:1
`, []string{
			"/livez 200 ok", "/readyz 200 ok", "/readyz?verbose 200 [+]pleg ok\n", "/metrics 200 pleg_relist_duration_seconds_count",
			`/metrics 200 pleg_runtime_operations_total{operation_type="`, "/metrics 200 go_goroutines", "/metrics 200 process_cpu_seconds_total", `/metrics 200 pleg_build_info{`, `/pods 200 "state":"ready"`,
			"/metrics 200 pleg_server_connections 0", `/stages 200 "node":"n1"`,
			"/readyz?verbose 200 [+]otlp: ", "/readyz?verbose 200  nothing accepted for ", `/metrics 200 pleg_subscriber_lag_events{subscriber="stdout"} 0`, "H/readyz?verbose 200 [+]otlp: ", "O/readyz?verbose 200 [+]otlp ok",
			"/readyz?verbose 200 [+]nats: ", "/readyz?verbose 200 nothing acknowledged for ", "O/readyz?verbose 200 [+]nats ok", "/metrics 200 pleg_fleet_failing_seconds",
			"/metrics 200 pleg_otlp_exported_records_total 0",
		}},
		{"--listen 0.0.0.0:0", first + `serving a page, metrics, health, pods and events on http://\S+:\d+; pods and events only to clients that --web-config authenticates, because other machines can connect\n`, []string{"/metrics 200 "}},
		{"--listen 0 --health-listen 0.0.0.0:0 --web-config " + password, first + `serving a page, metrics, health, pods and events on http\(s\)://127\.0\.0\.1:\d+\n`, []string{"/livez 401 ", "/pods 401 ", "H/livez 200 ", "H/readyz 200 ", "H/metrics 404 "}},
		{"--listen 0.0.0.0:0 --web-config " + plain, "", []string{"/pods 403 encryption"}},
	} {
		out := newTranscript()
		s := start(t, out, strings.Fields("run --simulate=1 --churn-rate 0 "+test.args)...)
		out.await(t, "(sandbox)")
		if s.stderr.await(t, "connected to"); strings.Contains(test.args, "--otlp") {
			s.stderr.await(t, "exporting")
		}
		ports := regexp.MustCompile(`on http\S+:([0-9]+)`).FindAllStringSubmatch(s.stderr.String(), -1)
		if len(ports) != strings.Count(test.args, "listen ") || !regexp.MustCompile(test.said).MatchString(s.stderr.String()) {
			t.Fatalf("%s: stderr = %q, want the addresses and %s", test.args, s.stderr, test.said)
		}
		for _, answer := range test.answers {
			of, path, _ := strings.Cut(answer, "/")
			path, want, _ := strings.Cut(path, " ")
			host, port := "127.0.0.1", ports[0][1]
			if of != "" {
				port = ports[1][1]
			}
			if of == "O" {
				if host = otherAddress(t); host == "" {
					continue
				}
			}
			code, body := get(t, "http://"+host+":"+port+"/"+path)
			if path == "metrics" && strings.Contains(test.args, "--otlp") {
				kit.Golden(t, "testdata/metrics.golden", strings.Join(family.FindAllString(body, -1), ""))
			}
			if strings.HasSuffix(answer, "[+]nats: ") && !quietPublishers.MatchString(body) {
				t.Errorf("GET %s = %s, want %v", answer, body, quietPublishers)
			}
			if got := fmt.Sprintf("%d %s", code, body); !strings.HasPrefix(got, want[:4]) || !strings.Contains(got, want[4:]) {
				t.Errorf("%s: GET %s = %s, want %s", test.args, answer, got, want)
			}
		}
		s.stopAndWait(t)
	}
}

// quietPublishers matches what /readyz?verbose says of publishers without a server.
var quietPublishers = regexp.MustCompile(`\n\[\+\]nats: (cannot publish: not connected to nats://127\.0\.0\.1:1: [^;\n]*; )?nothing acknowledged for \d+s
\[\+\]otlp: (cannot export: [^\n]*; )?nothing accepted for \d+s\n`)

// family is the line of a metric.
var family = regexp.MustCompile(`(?m)^# TYPE .*\n`)

// What /readyz?verbose says of a publisher, without an error and with one, and of what was too large.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := time.Now().Add(-90400 * time.Millisecond)
		for want, err := range map[string]error{"nothing stored for 1m30s": nil, "cannot store: broken; nothing stored for 1m30s": errors.New("broken")} {
			if got := cli.Progress("store", "stored", last, err); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
	for cut, want := range []string{"", "; 1 event or state was too large and is published in part", "; 2 events and states were too large and are published in part"} {
		if got := cli.Partial(uint64(cut)); got != want {
			t.Errorf("%d: %q, want %q", cut, got, want)
		}
	}
}

// Each series is kept for every node of a cluster. Two clients and CRI events are in the count.
func TestFewSeries(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	s := start(t, io.Discard, "run", "--simulate=5", "--churn-rate", "100", "--events", "auto", "--quiet", "--socket", socket, "--listen", "0")
	url := servedOn.FindString(s.stderr.await(t, "connected to"))
	waitForPods(t, socket, 2)
	_, text := get(t, url+"/metrics")
	series := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	if series < 100 || series > 150 {
		t.Errorf("%d series, want at most 150", series)
	}
	s.stopAndWait(t)
}

// otherAddress returns an address of this machine that others reach; "" if there is none.
func otherAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	kit.Must(t, err)
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	return ""
}

// TestRunWaitsForTheRuntime starts before there is a runtime, or while nothing answers at
// its socket. /readyz fails until the runtime answers.
func TestRunWaitsForTheRuntime(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"no socket": "the socket does not exist", "no answer": "it accepts connections but never answers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent, socket := kit.Socket(t)
			if name == "no socket" {
				_ = silent.Close()
			}
			code, _, stderr := run(t, "run", "-r", "unix://"+socket)
			if code != cli.ExitFailure || !strings.Contains(stderr, want) {
				t.Errorf("without --wait-for-runtime: exit code %d, stderr %q, want %q", code, stderr, want)
			}
			out := newTranscript()
			s := start(t, out, "run", "--wait-for-runtime", "--listen", "0", "-r", "unix://"+socket)
			// The first relist may have failed by now; its log line is not judged here.
			text, _, _ := strings.Cut(s.stderr.await(t, "; waiting for it\n"), "; waiting for it\n")
			if !strings.Contains(text, want) || strings.Contains(text, "rpc error") {
				t.Errorf("stderr = %q, want only that %q", text, want)
			}
			url := servedOn.FindString(text)
			if _, body := get(t, url+"/stages"); !strings.Contains(body, `"runtime":"unix://`+socket+`"`) {
				t.Errorf("GET /stages = %s, want the address of the runtime", body)
			}
			if code, body := get(t, url+"/readyz"); code != http.StatusServiceUnavailable {
				t.Errorf("GET /readyz = %d %q, want %d", code, body, http.StatusServiceUnavailable)
			}
			_ = silent.Close()
			simulated := start(t, newTranscript(), "simulate", "--socket", socket, "--pods", "1", "--churn-rate", "0")
			out.await(t, "(sandbox)")
			if code, body := get(t, url+"/readyz"); code != http.StatusOK {
				t.Errorf("GET /readyz with a runtime = %d %q, want %d", code, body, http.StatusOK)
			}
			s.stopAndWait(t)
			if text := s.stderr.String(); strings.Count(text, "; waiting for it\n") != 1 {
				t.Errorf("stderr %q, want one notice that it waits", text)
			}
			simulated.stopAndWait(t)
		})
	}
}

// TestRunWaitsForASocket finds no runtime at any well-known socket.
func TestRunWaitsForASocket(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	p := cli.Process{Sockets: []string{"unix://" + socket}}
	const advice = "\nname one with --runtime-endpoint, or try the program without a runtime: pleg-pipeline run --simulate\n"
	if code, _, stderr := execute(t, p, "run"); code != cli.ExitFailure || !strings.Contains(stderr, "no container runtime found") || !strings.HasSuffix(stderr, advice) {
		t.Errorf("without --wait-for-runtime: exit code %d, stderr %q", code, stderr)
	}
	out := newTranscript()
	s := startIn(t, p, out, "run", "--wait-for-runtime")
	s.stderr.await(t, "waiting for a runtime: ")
	simulated := start(t, newTranscript(), "simulate", "--socket", socket, "--pods", "1", "--churn-rate", "0")
	out.await(t, "(sandbox)")
	s.stopAndWait(t)
	simulated.stopAndWait(t)
}

// TestConfigurationOfCrictl names a runtime there, and no flag names one.
func TestConfigurationOfCrictl(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "crictl.yaml")
	kit.Must(t, os.WriteFile(config, []byte("runtime-endpoint: unix:///none/socket\n"), 0o600))
	code, _, stderr := execute(t, cli.Process{Config: config, Sockets: []string{}}, "run")
	if want := "\n  the address is from " + config + "; name another one with --runtime-endpoint,\n"; code != cli.ExitFailure || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
}

// TestRunBoundsClients connects one client more than each flag allows.
func TestRunBoundsClients(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	s := start(t, newTranscript(), "run", "--simulate=1", "--churn-rate", "0", "--quiet", "--socket", socket, "--listen", "127.0.0.1:0",
		"--max-connections", "2", "--max-watchers", "1", "--max-event-streams", "1")
	defer s.stopAndWait(t)
	url := servedOn.FindString(s.stderr.await(t, "connected to"))
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		answer := open(t, url+"/events")
		defer answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("GET /events: %d, want %d", answer.StatusCode, want)
		}
	}
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted, codes.Unavailable} {
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		kit.Must(t, err)
		defer func() { _ = conn.Close() }()
		stream, err := plegv1.NewPLEGClient(conn).Watch(t.Context(), &plegv1.WatchRequest{Replay: true})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("watcher: %v, want %v", err, want)
		}
	}
}

// A server of a cluster that accepts and never answers, and Ctrl-C.
func TestStopsBeforeAServerAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	defer l.Close()
	s := start(t, newTranscript(), "pods", "--fleet", "nats://"+l.Addr().String(), "--cluster", "c")
	conn, err := l.Accept()
	kit.Must(t, err)
	s.stopAndWait(t)
	_ = conn.Close()
	if want := "pleg-pipeline: context canceled before there was an answer\n"; s.stderr.String() != want {
		t.Errorf("stderr %q, want %q", s.stderr, want)
	}
}

// TestStopsBeforeAnAnswer presses Ctrl-C during the check of a runtime that accepts and never answers, or in front of
// a daemon like that. A command looks twice whether there is a daemon before it asks.
func TestStopsBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	for args, connections := range map[string]int{"run -r": 1, "pods -r": 1, "pods --connect": 3} {
		l, path := kit.Socket(t)
		s := start(t, newTranscript(), append(strings.Fields(args), path)...)
		for range connections {
			conn, err := l.Accept()
			kit.Must(t, err)
			defer conn.Close()
		}
		s.stop()
		s.ends(t, cli.ExitOK)
		if want := "pleg-pipeline: context canceled before there was an answer\n"; connections == 1 && s.stderr.String() != want {
			t.Errorf("%s: stderr = %q, want %q", args, s.stderr, want)
		}
	}
}
