package httpserver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// ask calls a handler directly.
func ask(t *testing.T, h http.Handler, method, url string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, url, nil))
	return answer.Code, answer.Body.String()
}

func expectReady(t *testing.T, h http.Handler, code int, want string) {
	t.Helper()
	if got, text := ask(t, h, "GET", "/readyz?verbose"); got != code || !strings.Contains(text, want) {
		t.Errorf("/readyz = %d %q, want %d %q", got, text, code, want)
	}
}

// handlers returns a handler that names pods, and a handler that does not.
func handlers(pipe *pipeline.Pipeline) (open, closed http.Handler) {
	o := options(pipe)
	o.Parts = []httpserver.Part{{Name: "nats", State: func() string { return "cannot publish: secret server" }}}
	open = httpserver.Handler(o)
	o.Address = everywhere
	return open, httpserver.Handler(o)
}

func TestPaths(t *testing.T) {
	const never, notSynced = "pleg has yet to be successful", "list pods: the first list of all pods is not committed yet\n"
	for _, test := range []struct {
		name string
		down bool
		url  string
		code int
		body string
	}{
		{"live", false, "/livez", 200, "ok"},
		{"live in words", false, "/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"},
		{"live without a runtime", true, "/livez", 200, "ok"},
		{"ready", false, "/readyz", 200, "ok"},
		{"ready in words", false, "/readyz?verbose=1", 200, "[+]ping ok\n[+]pleg ok\n[+]inspections ok\n[+]verdict: OK: the node is healthy, it has no pods\nreadyz check passed\n"},
		{"not ready", true, "/readyz", 503, "[+]ping ok\n[-]pleg failed: " + never + ": list pods: down\n[+]inspections ok\n[+]verdict: WARNING: the list of all pods fails since 00:00 (1.5s, 2 attempts): list pods: down\nreadyz check failed\n"},
		{"metrics", false, "/metrics", 200, "# HELP temperature_celsius A temperature.\n# TYPE temperature_celsius gauge\ntemperature_celsius 0\n"},
		{"pods before the first list", true, "/pods", 503, notSynced}, // an empty list would say that they are gone
		{"a pod before the first list", true, "/pods/web", 503, notSynced},
		{"another path", false, "/pod", 404, "404 page not found\n"},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			runtime := plegtest.New()
			if test.down {
				runtime.SetListFault(plegtest.Fail(errors.New("down")))
			}
			pipe, _ := newPipe(t, runtime, pipeline.Options{})
			time.Sleep(1500 * time.Millisecond)
			header := get(t, httpserver.Handler(options(pipe)), test.url).Header
			if strings.Contains(test.url, "z") && (header.Get("Cache-Control") != "no-cache, private" || header.Get("Content-Type") != "text/plain; charset=utf-8" || header.Get("X-Content-Type-Options") != "nosniff") {
				t.Errorf("%s has %v", test.url, header)
			}
			if code, got := ask(t, httpserver.Handler(options(pipe)), "GET", test.url); code != test.code || got != test.body {
				t.Errorf("%s = %d %q, want %d %q", test.url, code, got, test.code, test.body)
			}
		})
	}
}

// TestHealthIsPrintable: text of the runtime and of a part moves no cursor of a terminal.
func TestHealthIsPrintable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.SetListFault(plegtest.Fail(errors.New("\x1b[2J")))
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		time.Sleep(1500 * time.Millisecond)
		o := options(pipe)
		o.Parts = []httpserver.Part{{Name: "nats", State: func() string { return "\x1b[2J" }}}
		if _, text := ask(t, httpserver.Handler(o), "GET", "/readyz"); strings.Contains(text, "\x1b") || strings.Count(text, "?[2J\n") != 3 {
			t.Errorf("/readyz = %q, want three lines with the text, without its escape", text)
		}
		runtime.SetListFault(nil)
		runtime.Set("shop/\u202e", "c=running /s=running")
		time.Sleep(time.Minute)
		for _, url := range []string{"/pods", "/pods/shop/\u202e"} {
			if _, text := ask(t, httpserver.Handler(o), "GET", url); strings.Contains(text, "\u202e") || !strings.Contains(text, `"uid":"shop/\u202e"`) {
				t.Errorf("%q = %q, want the name without its effect", url, text)
			}
		}
	})
}

// TestErrorsOfMetrics: metrics that cannot be gathered are an error. A client that leaves in the middle of an
// answer is not.
func TestErrorsOfMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
		o := options(pipe)
		var log bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "large", Help: strings.Repeat("x", 1<<20)}))
		o.Gatherer = registry
		l := bufconn.Listen(buffer)
		serveOn(t, l, httpserver.Handler(o), "")
		client := dial(t, l)
		_, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		kit.Must(t, err)
		synctest.Wait()
		kit.Must(t, client.Close())
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("a client has gone away: the log has %q, want nothing", &log)
		}
		o.Gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			others, err := options(pipe).Gatherer.Gather()
			return others, errors.Join(err, errors.New("broken collector"))
		})
		if code, text := ask(t, httpserver.Handler(o), "GET", "/metrics"); code != http.StatusOK || !strings.Contains(text, "temperature_celsius 0\n") {
			t.Errorf("beside a broken collector: %d %q, want the other metrics", code, text)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, " level=ERROR msg=\"cannot gather metrics\" err=\"broken collector\"\n") {
			t.Errorf("the log has %q, want the error of gathering", text)
		}
	})
}

// TestHealthAlone: a listener for probes serves nothing but health.
func TestHealthAlone(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	h := httpserver.HealthHandler(options(pipe))
	for path, want := range map[string]int{"/livez": 200, "/metrics": 404, "/pods": 404, "/events": 404, "/": 404} {
		if code, text := ask(t, h, "GET", path); code != want {
			t.Errorf("%s = %d %q, want %d", path, code, text, want)
		}
	}
}

func TestPodsThatWaitAreCounted(t *testing.T) {
	for pods, want := range []string{"0 pods wait for an inspection", "1 pod waits for an inspection", "2 pods wait for an inspection"} {
		if got := httpserver.Waiting(pods); got != want {
			t.Errorf("%d: %q, want %q", pods, got, want)
		}
	}
}

// A client that may not see pods gets neither their names nor the runtime's words.
func TestUnreadyNamesNobodyToStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.SetListFault(plegtest.Fail(errors.New("secret")))
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		open, closed := handlers(pipe)
		time.Sleep(1500 * time.Millisecond)
		expectReady(t, closed, 503, "[-]pleg failed: no list has succeeded yet\n")
		expectReady(t, closed, 503, "[+]nats ok\n")
		expectReady(t, open, 503, "[+]nats: cannot publish: secret server\n")
		runtime.SetListFault(nil)
		runtime.Set("shop/a", "c=running")
		runtime.Set("shop/b", "c=running")
		runtime.SetInspectFault(plegtest.Hang)
		time.Sleep(2*pipeline.DefaultRelistThreshold + 37*time.Millisecond)
		expectReady(t, open, 503, "these pods wait: shop/")
		if code, text := ask(t, open, "GET", "/pods/nosuch"); code != http.StatusNotFound {
			t.Errorf("an unknown pod = %d %q, want 404", code, text)
		}
		expectReady(t, closed, 503, "[-]pleg failed: the last successful list began 500ms ago, 2 pods wait for an inspection\n")
		runtime.SetListFault(plegtest.Fail(errors.New("secret")))
		time.Sleep(time.Minute)
		for _, url := range []string{"/readyz", "/readyz?verbose"} {
			if _, text := ask(t, closed, "GET", url); strings.Contains(text, "shop") || strings.Contains(text, "secret") {
				t.Errorf("%s says %q", url, text)
			}
		}
		runtime.SetInspectFault(nil)
		runtime.SetListFault(nil)
		time.Sleep(10 * time.Minute)
		runtime.SetListFault(plegtest.Fail(errors.New("secret")))
		time.Sleep(time.Minute)
		expectReady(t, open, 200, ": list pods: secret\n")
		o := options(pipe)
		o.Address, o.WebConfig = everywhere, write(t, users) // but no certificate
		for _, to := range []http.Handler{closed, httpserver.Handler(o)} {
			if _, text := ask(t, to, "GET", "/readyz?verbose"); strings.Contains(text, "secret") || !strings.Contains(text, "PROBLEM: runtime fails since") {
				t.Errorf("/readyz says %q", text)
			}
		}
		time.Sleep(4 * time.Minute)
		expectReady(t, closed, 503, "s ago, 0 pods wait for an inspection\n")
	})
}

// TestReadyNamesBacklog makes inspections hang: a few are named, too many fail the check.
func TestReadyNamesBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/known", "c=running /s=running")
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		open, closed := handlers(pipe)
		time.Sleep(1500 * time.Millisecond)
		runtime.SetInspectFault(plegtest.Delay(time.Hour))
		runtime.Set("shop/known", "c=exited /s=running")
		runtime.Set("shop/new", "c=running /s=running")
		time.Sleep(time.Minute)
		expectReady(t, open, 200, "PROBLEM: shop/name-shop/known and 1 more pod hang since 00:00 (59s)")
		expectReady(t, open, 200, "; shop/name-shop/new hangs since 00:00 (59s)\n")
		expectReady(t, closed, 200, "[+]verdict: PROBLEM: hung container since 00:00 (59s)\n")
		for _, path := range []string{"/pods/shop/known", "/pods?pod=shop/known"} {
			if _, text := ask(t, open, "GET", path); !strings.Contains(text, `"state":"hung"`) {
				t.Errorf("%s is %s, want that the pod hangs", path, text)
			}
		}
		for n := range httpserver.MaxBacklog - 2 {
			runtime.Set(pleg.PodUID(fmt.Sprint("shop/newer", n)), "c=running /s=running")
		}
		time.Sleep(40 * time.Second)
		expectReady(t, open, 200, "[+]inspections ok\n")
		runtime.Set("shop/newest", "c=running /s=running")
		time.Sleep(20 * time.Second)
		expectReady(t, open, 200, "[+]inspections ok\n")
		runtime.Set("shop/latest", "c=running /s=running") // not for long yet
		time.Sleep(20 * time.Second)
		expectReady(t, open, 503, "[-]inspections failed: 11 of 12 pods wait for an inspection; ")
		expectReady(t, open, 503, "at most 10 may wait for more than 30s\n")
		runtime.SetInspectFault(nil)
		time.Sleep(2 * time.Minute)
		expectReady(t, open, 200, "[+]inspections ok\n")
	})
}

func TestPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/a", "c=exited /s=running")
		runtime.Set("bank/b", "c=running /s=exited")
		runtime.Set("bank/broken", "c=running /s=running")
		runtime.SetPodFault("bank/broken", plegtest.Fail(errors.New("broken")))
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		time.Sleep(1500 * time.Millisecond)
		h := httpserver.Handler(options(pipe))
		for query, want := range map[string][]string{
			"":                   {"bank/b notready 1/1 false", "bank/broken failed 1/1 true", "shop/a notready 0/1 false"},
			"?namespace=shop":    {"shop/a notready 0/1 false"},
			"?namespace=nowhere": nil,
			"?selector=nosuch":   nil,
			"?pod=shop/a,bank/b": {"bank/b notready 1/1 false", "shop/a notready 0/1 false"},
			"?pod=nosuch":        nil,
		} {
			code, text := ask(t, h, "GET", "/pods"+query)
			var got struct {
				Epoch, Position string
				States          []string
				Pods            []view.Pod
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK || got.Epoch != pipe.Epoch() || got.Pods == nil {
				t.Fatalf("/pods%s = %d %q, %v", query, code, text, err)
			}
			if _, at, _ := pipe.Pods(t.Context()); got.Position != at.String() || !slices.Equal(got.States, view.States()) {
				t.Errorf("/pods%s is of %s with the states %q, want %v", query, got.Position, got.States, at)
			}
			if header := get(t, h, "/pods"+query).Header; header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
				t.Errorf("/pods%s has %v", query, header)
			}
			var pods []string
			for _, p := range got.Pods {
				pods = append(pods, fmt.Sprintf("%s %s %d/%d %t", p.UID, p.State, p.Running, p.Total, p.Error != ""))
			}
			if !slices.Equal(pods, want) {
				t.Errorf("/pods%s: %q, want %q", query, pods, want)
			}
		}
		for path, want := range map[string]int{
			"/pods/shop/a": 200, "/pods/bank/broken": 200, "/pods/nosuch": 404, "/pods/": 404, "/pods?selector=((": 400, "/pods?namspace=shop": 400, "/stages?pods": 400, "/hour?pods": 400,
		} {
			if code, text := ask(t, h, "GET", path); code != want {
				t.Errorf("%s = %d %q, want %d", path, code, text, want)
			}
		}
		for path, want := range map[string]string{
			"/hour?pods": `unknown parameter "pods": want none`, "/stages?pods": `unknown parameter "pods": want none`,
			"/pods?namspace=shop": `unknown parameter "namspace": want namespace, pod, selector`, "/pods/nosuch": "no pod with this UID is known",
		} {
			if _, text := ask(t, h, "GET", path); text != want+"\n" {
				t.Errorf("%s = %q, want %q", path, text, want)
			}
		}
		if header := get(t, h, "/pods/shop/a").Header; header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("/pods/shop/a has %v", header)
		}
	})
}
