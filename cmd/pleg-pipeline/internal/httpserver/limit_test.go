package httpserver_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// TestRate: a client that asks without end gets few answers a second, and others wait for a
// short time or are refused at once.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answers atomic.Int32
		h := httpserver.LimitRate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answers.Add(1) }))
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			if code, text := ask(t, h, "GET", "/"); code != http.StatusOK {
				t.Fatalf("one after the other: %d %q, want 200", code, text)
			}
		}
		if n := answers.Load(); n > 11*httpserver.MaxRate {
			t.Errorf("%d answers in 10 s, want at most %d a second", n, httpserver.MaxRate)
		}
		var asking sync.WaitGroup
		var refused atomic.Int32
		for range 6 * httpserver.MaxRate {
			asking.Go(func() {
				if code, text := ask(t, h, "GET", "/"); code != http.StatusOK {
					refused.Add(1)
					if code != http.StatusServiceUnavailable || !strings.Contains(text, "20 a second") {
						t.Errorf("refused with %d %q", code, text)
					}
				}
			})
		}
		asking.Wait()
		if n := refused.Load(); n == 0 || n > 2*httpserver.MaxRate {
			t.Errorf("%d of %d at once were refused", n, 6*httpserver.MaxRate)
		}
	})
}

// TestConnectionsAreLimited has a request on every connection. One more waits until another
// ends.
func TestConnectionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener(1)
		var entered atomic.Int32
		release := make(chan struct{})
		serveOn(t, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered.Add(1)
			<-release
		}), "")
		for range httpserver.MaxConnections + 1 {
			conn := l.connect(t)
			go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") }()
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
		synctest.Wait()
		if n := entered.Load(); n != httpserver.MaxConnections {
			t.Errorf("%d connections are served, want %d", n, httpserver.MaxConnections)
		}
		release <- struct{}{}
		synctest.Wait()
		if n := entered.Load(); n != httpserver.MaxConnections+1 {
			t.Errorf("%d connections are served after one has ended, want one more", n)
		}
		close(release)
	})
}

// TestLargeHeader sends more than the server reads.
func TestLargeHeader(t *testing.T) {
	address := servePipe(t, plegtest.New(), "")
	if answer := fetch(t, "http://"+address+"/livez", "Cookie", strings.Repeat("c", 32<<10)); answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("32 KiB of headers = %d, want 431", answer.StatusCode)
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
