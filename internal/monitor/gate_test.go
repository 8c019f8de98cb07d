package monitor_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/monitor"
)

// TestGateRefusesClearly opens more connections than there may be.
func TestGateRefusesClearly(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), "")
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range monitor.MaxConnections {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	answer := fetch(t, "http://"+address+"/livez")
	if text := body(t, answer); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "too many connections") {
		t.Errorf("one more = %d %q, want 503 and why", answer.StatusCode, text)
	}
	_ = conns[0].Close()
	until(t, "http://"+address+"/livez", http.StatusNotFound) // the place is free soon
}
