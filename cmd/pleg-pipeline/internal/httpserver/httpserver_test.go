package httpserver_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address, err := httpserver.ParseAddress("0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := httpserver.Listen(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- httpserver.Serve(ctx, listener, http.NotFoundHandler(), "", slog.New(slog.DiscardHandler))
	}()
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
	if err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("GET /livez = %q, %v, want the handler's answer", body, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v, want nil after its context has ended", err)
	}
	again, err := httpserver.Listen(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatalf("listen again: %v, want the address to be free", err)
	}
	_ = again.Close()
}

func TestServeReportsBrokenListener(t *testing.T) {
	listener, err := httpserver.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := httpserver.Serve(t.Context(), listener, http.NotFoundHandler(), "", slog.New(slog.DiscardHandler)); err == nil {
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
		got, err := httpserver.ParseAddress(test.in)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("ParseAddress(%q) = %q, %v, want %q and error %q", test.in, got, err, test.want, test.err)
		}
	}
}
