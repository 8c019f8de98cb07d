package httpserver_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestLimit holds as many requests as the limit allows.
func TestLimit(t *testing.T) {
	release, inside := make(chan struct{}), make(chan struct{})
	var entered atomic.Int32
	h := httpserver.Limit(2, "requests", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if entered.Add(1) > 2 {
			return // the checks below find it
		}
		inside <- struct{}{}
		<-release
	}))
	ended := make(chan int)
	for range 2 {
		go func() {
			code, _ := ask(t, h, "GET", "/")
			ended <- code
		}()
		<-inside
	}
	if code, text := ask(t, h, "GET", "/"); code != http.StatusServiceUnavailable || !strings.Contains(text, "2 at a time") {
		t.Errorf("the third = %d %q, want 503 and the limit", code, text)
	}
	close(release)
	for range 2 {
		if code := <-ended; code != http.StatusOK {
			t.Errorf("one of two = %d, want 200", code)
		}
	}
	if code, _ := ask(t, h, "GET", "/"); code != http.StatusOK {
		t.Errorf("one after them = %d, want 200", code)
	}
}

// TestNothingWrites tries every method that could change something.
func TestNothingWrites(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	h := httpserver.Handler(options(pipe))
	for _, path := range []string{"/metrics", "/livez", "/readyz", "/pods", "/pods/x", "/events"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE"} {
			if code, _ := ask(t, h, method, path); code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s = %d, want 405", method, path, code)
			}
		}
	}
}

// TestOldTLS requires that old versions are refused in the configuration and in the
// handshake.
func TestOldTLS(t *testing.T) {
	cert := newCertificate(t)
	for version, bad := range map[string]bool{", min_version: TLS10": true, ", min_version: TLS11": true, ", min_version: TLS12": false, "": false} {
		if err := httpserver.CheckWebConfig(cert.config(t, version)); (err != nil) != bad {
			t.Errorf("%q: CheckWebConfig() = %v, want an error: %v", version, err, bad)
		}
	}
	address := servePipe(t, plegtest.New(), cert.config(t, ""))
	sessions := tls.NewLRUClientSessionCache(1)
	for range 2 { // a resumed session would skip checks of a configuration that has changed
		answer, err := (&http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool, ClientSessionCache: sessions}, DisableKeepAlives: true}).RoundTrip(newRequest(t, "https://"+address+"/livez"))
		kit.Must(t, err)
		if _ = body(t, answer); answer.TLS.DidResume {
			t.Error("the session was resumed")
		}
		_ = answer.Body.Close()
	}
	for version, bad := range map[uint16]bool{tls.VersionTLS10: true, tls.VersionTLS11: true, tls.VersionTLS12: false, tls.VersionTLS13: false} {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: cert.pool, MinVersion: version, MaxVersion: version}}).DialContext(t.Context(), "tcp", address)
		if (err != nil) != bad {
			t.Errorf("%s: %v, want an error: %v", tls.VersionName(version), err, bad)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

// TestServeTLS streams events over HTTP/1 and HTTP/2.
func TestServeTLS(t *testing.T) {
	cert := newCertificate(t)
	path := cert.config(t, "")
	kit.Must(t, httpserver.CheckWebConfig(path))
	runtime := plegtest.New()
	runtime.Set("shop/a", "c=running /s=running")
	address := servePipe(t, runtime, path)
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool}, ForceAttemptHTTP2: http2}
		request := newRequest(t, "https://"+address+"/events?replay&bookmarks")
		request.Host = "node.example" // the certificate says which names are right
		answer, err := transport.RoundTrip(request)
		kit.Must(t, err)
		if wanted := map[bool]int{false: 1, true: 2}[http2]; answer.ProtoMajor != wanted || answer.StatusCode != http.StatusOK {
			t.Errorf("HTTP/%d %s, want 200 and HTTP/%d", answer.ProtoMajor, answer.Status, wanted)
		}
		lines := bufio.NewReader(answer.Body)
		for line := ""; !strings.HasPrefix(line, "event: Bookmark"); {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		_ = answer.Body.Close()
		transport.CloseIdleConnections()
	}
}

// TestStreamsOfAConnection reads how many requests a connection may have over HTTP/2.
func TestStreamsOfAConnection(t *testing.T) {
	cert := newCertificate(t)
	address := servePipe(t, plegtest.New(), cert.config(t, ""))
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: cert.pool, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", address)
	kit.Must(t, err)
	defer conn.Close()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 9) // of the first frame, which has the settings
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	settings := make([]byte, head[2])
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(settings, []byte{0, 3, 0, 0, 0, 32}) { // SETTINGS_MAX_CONCURRENT_STREAMS
		t.Errorf("settings %v, want at most 32 requests", settings)
	}
}
