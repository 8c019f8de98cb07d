package httpserver_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
)

// TestGateRefusesClearly opens more connections than the limit.
func TestGateRefusesClearly(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), "")
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range httpserver.MaxConnections {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if code, text := knock(t, address); code != http.StatusServiceUnavailable || !strings.Contains(text, "too many connections") {
		t.Errorf("one connection too many = %d %q, want 503 and why", code, text)
	}
	_ = conns[0].Close()
	for code := http.StatusServiceUnavailable; code != http.StatusNotFound; { // its connection ends soon
		code, _ = knock(t, address)
	}
}

// knock repeats a request until it gets an answer. On a busy machine the server may close
// a refused connection before the request is sent.
func knock(t *testing.T, address string) (code int, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil {
			return answer.StatusCode, string(read)
		}
	}
}
