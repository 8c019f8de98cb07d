package httpserver_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// newPipe returns a pipeline on a runtime. It runs until stop is called or the test ends.
func newPipe(t *testing.T, runtime *plegtest.Runtime, o pipeline.Options) (pipe *pipeline.Pipeline, stop func()) {
	t.Helper()
	if o.Runtime == nil {
		o.Runtime = runtime.Basic()
	}
	p := kit.New(t, o)
	p.Start(t)
	return p.Pipeline, func() { _ = p.Stop() }
}

func options(pipe *pipeline.Pipeline) httpserver.Options {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "temperature_celsius", Help: "A temperature."}))
	return httpserver.Options{Pipeline: pipe, Gatherer: registry, Logger: slog.New(slog.DiscardHandler)}
}

// serve serves handler on a free port until the test ends, and returns the address.
func serve(t *testing.T, handler http.Handler, webConfig string) string {
	t.Helper()
	l, err := httpserver.Listen(t.Context(), "127.0.0.1:0")
	kit.Must(t, err)
	serveOn(t, l, handler, webConfig)
	return l.Addr().String()
}

func serveOn(t *testing.T, l net.Listener, handler http.Handler, webConfig string) (stop func() error) {
	t.Helper()
	return kit.Run(t, func(ctx context.Context) error {
		return httpserver.Serve(ctx, l, handler, webConfig, slog.New(slog.DiscardHandler))
	})
}

// servePipe runs a pipeline on a runtime and serves it.
func servePipe(t *testing.T, runtime *plegtest.Runtime, webConfig string) (address string) {
	t.Helper()
	pipe, _ := newPipe(t, runtime, pipeline.Options{RelistPeriod: fast})
	kit.Must(t, pipe.WaitSynced(t.Context())) // before the first list, /pods returns 503
	return serve(t, httpserver.Handler(options(pipe)), webConfig)
}

func newRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	kit.Must(t, err)
	return request
}

// fetch returns the answer to a request. The caller may read its body until the test
// ends. The header Host replaces the host name of the URL.
func fetch(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	request := newRequest(t, url)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	request.Host = cmp.Or(request.Header.Get("Host"), request.Host)
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	kit.Must(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func body(t *testing.T, answer *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(answer.Body)
	kit.Must(t, err)
	return string(text)
}

// buffer is how many bytes a connection in memory holds, less than the size of an answer.
const buffer = 16

// dial returns a connection to a listener in memory, until the test ends.
func dial(t *testing.T, l *bufconn.Listener) net.Conn {
	t.Helper()
	conn, err := l.DialContext(t.Context())
	kit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// message is one server-sent event.
type message struct{ id, event, data string }

var sent = regexp.MustCompile(`(?:id: (\S+)\n)?event: (\w+)\ndata: (.*)\n`)

// events returns the messages that a client of /events gets in the next seconds. It needs a bubble.
func events(t *testing.T, l *bufconn.Listener, query, lastID string) (all []message) {
	t.Helper()
	client := dial(t, l)
	time.AfterFunc(2*time.Second, func() { client.Close() })
	_, err := io.WriteString(client, "GET /events"+query+" HTTP/1.1\r\nHost: x\r\nLast-Event-ID: "+lastID+"\r\n\r\n")
	kit.Must(t, err)
	text, _ := io.ReadAll(client)
	for _, line := range []string{"200 OK", "Content-Type: text/event-stream", "Cache-Control: no-store", "X-Accel-Buffering: no"} { // for a proxy
		if !strings.Contains(string(text), line+"\r\n") {
			t.Fatalf("GET /events%s = %s, want a stream with %q", query, text, line)
		}
	}
	for _, m := range sent.FindAllStringSubmatch(string(text), -1) {
		all = append(all, message{m[1], m[2], m[3]})
	}
	return all
}

const fast = 5 * time.Millisecond

func TestMain(m *testing.M) {
	time.Local = time.UTC
	goleak.VerifyTestMain(m)
}

// TestServeEndsUnreadAnswers: a client that does not read delays the end by a second. Then its
// connection is closed.
func TestServeEndsUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(buffer)
		large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
		stop := serveOn(t, l, large, "")
		client := dial(t, l)
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > time.Second {
			t.Errorf("Serve() = %v after %v", err, time.Since(began))
		}
		if n, _ := io.Copy(io.Discard, client); n > buffer {
			t.Errorf("read %d bytes after the end", n)
		}
	})
}

// An event stream ends at once.
func TestServeEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
		l := bufconn.Listen(1 << 10)
		stop := serveOn(t, l, httpserver.Handler(options(pipe)), "")
		_, err := io.WriteString(dial(t, l), "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
		kit.Must(t, err)
		synctest.Wait()
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 500*time.Millisecond { // Shutdown polls
			t.Errorf("Serve() = %v after %v", err, time.Since(began))
		}
	})
}

// An answer that takes less than a second is whole, although the server ends meanwhile.
func TestServeFinishesAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 10)
		stop := serveOn(t, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(900 * time.Millisecond)
			_, _ = io.WriteString(w, "whole")
		}), "")
		client := dial(t, l)
		_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		kit.Must(t, err)
		synctest.Wait()
		kit.Must(t, stop())
		if text, err := io.ReadAll(client); err != nil || !strings.HasSuffix(string(text), "\r\n\r\nwhole") {
			t.Errorf("the answer is %q, %v", text, err)
		}
	})
}

// TestServeReportsErrors: a listener that is closed, and a file that is gone since its check.
func TestServeReportsErrors(t *testing.T) {
	for webConfig, want := range map[string]string{"": "use of closed network connection", "/nonexistent/web.yaml": "open /nonexistent/web.yaml: no such file or directory"} {
		listener, err := httpserver.Listen(t.Context(), "127.0.0.1:0")
		kit.Must(t, err)
		if webConfig == "" {
			_ = listener.Close()
		}
		if err := httpserver.Serve(t.Context(), listener, http.NotFoundHandler(), webConfig, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.HasPrefix(err.Error(), "serve http on "+listener.Addr().String()+": ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("Serve(%q) = %v, want an error that ends with %s", webConfig, err, want)
		}
		if listener.Close() == nil {
			t.Errorf("Serve(%q) has left the listener open", webConfig)
		}
	}
}

// What clients do wrong is not worth a line of the log, except for debugging.
func TestErrorsOfClientsAreDebugging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := bufconn.Listen(1 << 10)
		stop := kit.Run(t, func(ctx context.Context) error {
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			return httpserver.Serve(ctx, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") }), "", logger)
		})
		client := dial(t, l)
		_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		kit.Must(t, err)
		_, _ = io.ReadAll(client)
		kit.Must(t, stop())
		if text := log.String(); !strings.Contains(text, "level=DEBUG") || !strings.Contains(text, "broken") {
			t.Errorf("the log is %q", text)
		}
	})
}

func TestAddresses(t *testing.T) {
	const noAddress, noPort = "%q is not an address: want PORT, :PORT or HOST:PORT", "%q is not a port: want 0 to 65535"
	for _, test := range []struct{ in, want, err string }{
		{"9090", "127.0.0.1:9090", ""},
		{":9090", "127.0.0.1:9090", ""},
		{"0", "127.0.0.1:0", ""},
		{"localhost:9090", "localhost:9090", ""},
		{"0.0.0.0:9090", "0.0.0.0:9090", ""},
		{"[::]:9090", "[::]:9090", ""},
		{"65535", "127.0.0.1:65535", ""},
		{"", "", fmt.Sprintf(noPort, "")},
		{":", "", fmt.Sprintf(noPort, "")},
		{"localhost", "", fmt.Sprintf(noPort, "localhost")},
		{"localhost:http", "", fmt.Sprintf(noPort, "http")},
		{"65536", "", fmt.Sprintf(noPort, "65536")},
		{"-1", "", fmt.Sprintf(noPort, "-1")},
		{"::1", "", fmt.Sprintf(noAddress, "::1")},
		{"http://localhost:9090", "", fmt.Sprintf(noAddress, "http://localhost:9090")},
	} {
		got, err := httpserver.CompleteAddress(test.in)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != test.want || text != test.err {
			t.Errorf("CompleteAddress(%q) = %q, %v, want %q and error %q", test.in, got, err, test.want, test.err)
		}
		if test.err != "" {
			if _, err := httpserver.Listen(t.Context(), test.in); err == nil || err.Error() != test.err {
				t.Errorf("Listen(%q) = %v, want %q", test.in, err, test.err)
			}
		}
		if err := httpserver.CheckAddress(test.in); (err == nil) != (test.err == "") {
			t.Errorf("CheckAddress(%q) = %v, want %q", test.in, err, test.err)
		}
	}
}
