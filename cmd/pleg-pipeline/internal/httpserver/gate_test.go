package httpserver_test

import (
	"bufio"
	"cmp"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// dial returns open connections that send nothing.
func dial(t *testing.T, address string, n int) []net.Conn {
	t.Helper()
	var conns []net.Conn
	for range n {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		kit.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
	}
	return conns
}

// busy serves a handler that keeps a connection with ?wait until the test ends.
func busy(t *testing.T) (address string, waiting <-chan struct{}) {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	address = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("wait") {
			entered <- struct{}{}
			<-release
		}
		_, _ = w.Write([]byte("ok"))
	}), "")
	t.Cleanup(func() { close(release) }) // before the server ends
	return address, entered
}

func isClosed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// TestIdleConnectionsMakeRoom opens more connections without a request than the server
// keeps.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	address, _ := busy(t)
	conns := dial(t, address, httpserver.MaxConnections)
	for _, c := range conns {
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("GET / = %v, %v, want 200", answer, err)
		}
	}
	for range 3 {
		if answer := fetch(t, "http://"+address+"/pods"); answer.StatusCode != http.StatusOK {
			t.Errorf("GET /pods = %d, want 200", answer.StatusCode)
		}
	}
	// One of those that were idle longest was closed for it; the last one still works. The
	// server notes a little after its answer that a connection is idle.
	if !slices.ContainsFunc(conns[:32], isClosed) {
		t.Error("all connections that were idle longest are open")
	}
	last := conns[len(conns)-1]
	if _, err := last.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if answer, err := http.ReadResponse(bufio.NewReader(last), nil); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("the newest connection: %v, %v, want 200", answer, err)
	}
}

// TestHealthBeyondTheLimit has a request on every connection, and many more connections
// that send nothing.
func TestHealthBeyondTheLimit(t *testing.T) {
	address, waiting := busy(t)
	for _, c := range dial(t, address, httpserver.MaxConnections) {
		if _, err := c.Write([]byte("GET /?wait HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		<-waiting
	}
	spare := dial(t, address, 2*httpserver.MaxSpare)[2*httpserver.MaxSpare-1]
	if _, err := spare.Write([]byte("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if answer, err := http.ReadResponse(bufio.NewReader(spare), nil); err != nil || answer.StatusCode != http.StatusOK || !answer.Close {
		t.Errorf("GET /livez = %v, %v, want 200 and the end of the connection", answer, err)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if answer := fetch(t, "http://"+address+path); answer.StatusCode != http.StatusOK {
			t.Errorf("GET %s = %d, want 200", path, answer.StatusCode)
		}
	}
	answer := fetch(t, "http://"+address+"/pods")
	if text := body(t, answer); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "too many connections: 1024 at a time") {
		t.Errorf("GET /pods = %d %q, want 503 and why", answer.StatusCode, text)
	}
	for range httpserver.MaxSpare { // one by one, so that none is idle
		if _, err := dial(t, address, 1)[0].Write([]byte("GET /livez?wait HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		<-waiting
	}
	began := time.Now()
	if _, err := dial(t, address, 1)[0].Read(make([]byte, 1)); err == nil || time.Since(began) > 8*time.Second { // before it is late
		t.Errorf("one more connection than those for health: %v after %v, want that it is closed", err, time.Since(began))
	}
}

// TestRequestBeforeManyConnections has a request, and behind it more connections than the
// server keeps, wait to be accepted.
func TestRequestBeforeManyConnections(t *testing.T) {
	l := &pipeListener{make(chan net.Conn, 2*httpserver.MaxConnections)}
	var asking net.Conn
	for range cap(l.conns) {
		client, server := net.Pipe()
		defer client.Close()
		asking = cmp.Or(asking, client)
		l.conns <- server
	}
	go func() { _, _ = asking.Write([]byte("GET /livez HTTP/1.0\r\n\r\n")) }()
	runtime.Gosched()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that nobody else reads while one accepts
	serveOn(t, l, http.NotFoundHandler(), newAccess(t, l.Addr(), ""))
	if answer, err := http.ReadResponse(bufio.NewReader(asking), nil); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("GET /livez = %v, %v, want the handler's answer", answer, err)
	}
}
