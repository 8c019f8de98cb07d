package monitor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/monitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func handler(healthy error) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "temperature_celsius", Help: "A temperature."}))
	return monitor.Handler(monitor.Options{
		Gatherer: registry,
		Healthy:  func() (bool, error) { return healthy == nil, healthy },
		Logger:   slog.New(slog.DiscardHandler),
	})
}

func TestPaths(t *testing.T) {
	sick := errors.New("pleg has yet to be successful")
	for _, test := range []struct {
		name    string
		healthy error
		method  string
		url     string
		code    int
		body    string
	}{
		{"live", nil, "GET", "/livez", 200, "ok"},
		{"live in words", nil, "GET", "/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"},
		{"live without a runtime", sick, "GET", "/livez", 200, "ok"},
		{"ready", nil, "GET", "/readyz", 200, "ok"},
		{"ready in words", nil, "GET", "/readyz?verbose=1", 200, "[+]ping ok\n[+]pleg ok\nreadyz check passed\n"},
		{"not ready", sick, "GET", "/readyz", 503, "[+]ping ok\n[-]pleg failed: pleg has yet to be successful\nreadyz check failed\n"},
		{"metrics", nil, "GET", "/metrics", 200, "# HELP temperature_celsius A temperature.\n# TYPE temperature_celsius gauge\ntemperature_celsius 0\n"},
		{"another path", nil, "GET", "/", 404, "404 page not found\n"},
		{"another method", nil, "POST", "/livez", 405, "Method Not Allowed\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(t.Context(), test.method, test.url, nil)
			handler(test.healthy).ServeHTTP(answer, request)
			if answer.Code != test.code || answer.Body.String() != test.body {
				t.Errorf("%s %s = %d %q, want %d %q", test.method, test.url, answer.Code, answer.Body, test.code, test.body)
			}
		})
	}
}

func TestServeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address, err := monitor.ParseAddress("0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := monitor.Listen(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- monitor.Serve(ctx, listener, handler(nil), slog.New(slog.DiscardHandler)) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || string(body) != "ok" {
		t.Errorf("GET /livez = %q, %v, want ok", body, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v, want nil after its context has ended", err)
	}
	again, err := monitor.Listen(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatalf("listen again: %v, want the address to be free", err)
	}
	_ = again.Close()
}

func TestServeReportsBrokenListener(t *testing.T) {
	listener, err := monitor.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := monitor.Serve(t.Context(), listener, handler(nil), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("Serve() = nil, want an error")
	}
}

func TestParseAddress(t *testing.T) {
	for _, test := range []struct{ in, want, err string }{
		{"9090", "127.0.0.1:9090", ""},
		{":9090", "127.0.0.1:9090", ""},
		{"0", "127.0.0.1:0", ""},
		{"localhost:9090", "localhost:9090", ""},
		{"0.0.0.0:9090", "0.0.0.0:9090", ""},
		{"[::]:9090", "[::]:9090", ""},
		{"", "", "not a port"},
		{":", "", "not a port"},
		{"localhost", "", "not a port"},
		{"localhost:http", "", "not a port"},
		{"65536", "", "not a port"},
		{"-1", "", "not a port"},
		{"::1", "", "not an address"},
		{"http://localhost:9090", "", "not an address"},
	} {
		got, err := monitor.ParseAddress(test.in)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("ParseAddress(%q) = %q, %v, want %q and error %q", test.in, got, err, test.want, test.err)
		}
	}
}
