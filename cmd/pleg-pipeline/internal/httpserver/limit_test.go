package httpserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

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
		answers.Store(0)
		time.Sleep(time.Second) // for a whole second of turns
		for range 6*httpserver.MaxRate + 5 {
			asking.Go(func() {
				if code, text := ask(t, h, "GET", "/"); code != http.StatusOK {
					refused.Add(1)
					if code != http.StatusServiceUnavailable || text != "too many requests: 20 a second\n" {
						t.Errorf("refused with %d %q", code, text)
					}
				}
			})
		}
		asking.Wait()
		if n := refused.Load(); n != 5 || answers.Load() != 6*httpserver.MaxRate { // in a second, and in five of waiting
			t.Errorf("%d of %d at once were refused, and %d answered", n, 6*httpserver.MaxRate+5, answers.Load())
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		before, began := answers.Load(), time.Now()
		if h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/", nil)); answers.Load() != before || time.Since(began) != 0 {
			t.Errorf("a client that has gone away took the turn of another, after %v", time.Since(began))
		}
	})
}

// TestAnswersAtOnce: clients that take long to read get no more than 16 answers at once.
func TestAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		h := httpserver.LimitRate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			begun.Add(1)
			time.Sleep(time.Minute)
		}))
		for range 16 {
			go ask(t, h, "GET", "/")
		}
		synctest.Wait()
		began := time.Now()
		if code, text := ask(t, h, "GET", "/"); time.Since(began) != 5*time.Second || code != http.StatusServiceUnavailable || text != "too many requests: 16 at a time\n" || begun.Load() != 16 {
			t.Errorf("the next = %d %q after %v, %d answers have begun, want 503 after 5 s and 16", code, text, time.Since(began), begun.Load())
		}
		time.Sleep(time.Until(began.Add(57 * time.Second)))
		for range 16 {
			go ask(t, h, "GET", "/")
		}
		time.Sleep(4 * time.Second) // the first answers have ended
		if n := begun.Load(); n != 32 {
			t.Errorf("%d answers have begun, want that those which waited follow", n)
		}
		time.Sleep(time.Minute)
	})
}

// unread is the answer to a client that does not read.
type unread struct {
	*httptest.ResponseRecorder
	until <-chan struct{}
}

// Write implements [http.ResponseWriter].
func (u unread) Write(p []byte) (int, error) {
	<-u.until
	return u.ResponseRecorder.Write(p)
}

// TestFilesAtOnce: clients that take long to read get no more than 64 files of the page at once.
func TestFilesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
		h := httpserver.Handler(options(pipe))
		for range 64 {
			go h.ServeHTTP(unread{httptest.NewRecorder(), t.Context().Done()}, httptest.NewRequestWithContext(t.Context(), "GET", "/page/main.js", nil))
		}
		synctest.Wait()
		if code, text := ask(t, h, "GET", "/"); code != http.StatusServiceUnavailable || text != "too many requests: 64 at a time\n" {
			t.Errorf("the next file = %d %q, want 503", code, text)
		}
	})
}

// TestRateOfPaths: the limit is on each path whose answer costs something; /livez always answers.
func TestRateOfPaths(t *testing.T) {
	for path, limited := range map[string]bool{"/metrics": true, "/readyz": true, "/pods": true, "/stages": true, "/hour": true, "/livez": false} {
		synctest.Test(t, func(t *testing.T) {
			pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
			h := httpserver.Handler(options(pipe))
			var asking sync.WaitGroup
			var refused atomic.Int32
			for range 7 * httpserver.MaxRate {
				asking.Go(func() {
					if _, text := ask(t, h, "GET", path); strings.Contains(text, "20 a second") {
						refused.Add(1)
					}
				})
			}
			asking.Wait()
			if n := refused.Load(); (n > 0) != limited {
				t.Errorf("%d of %d requests at once of %s were refused, want some: %t", n, 7*httpserver.MaxRate, path, limited)
			}
		})
	}
}

// TestConnectionsAreLimited sends a request on every connection. One more waits until another
// ends.
func TestConnectionsAreLimited(t *testing.T) {
	const connections = 1024
	if httpserver.MaxStreams != connections/2 {
		t.Errorf("%d connections may be streams, want half of them", httpserver.MaxStreams)
	}
	for _, webConfig := range []string{"", write(t, "{}")} {
		synctest.Test(t, func(t *testing.T) {
			l := bufconn.Listen(buffer)
			var entered atomic.Int32
			release := make(chan struct{})
			serveOn(t, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				entered.Add(1)
				<-release
			}), webConfig)
			for range connections + 1 {
				go func() {
					conn, err := l.Dial()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
					_, _ = io.Copy(io.Discard, conn)
				}()
				// One after the other: many timers of a bubble at once crash the race detector of Go 1.26.
				synctest.Wait()
			}
			if n := entered.Load(); n != connections {
				t.Errorf("web configuration %q: %d connections are served, want %d", webConfig, n, connections)
			}
			for range connections + 1 { // nor may they end at once
				release <- struct{}{}
				synctest.Wait()
				if n := entered.Load(); n != connections+1 {
					t.Errorf("web configuration %q: %d connections are served after one has ended, want one more", webConfig, n)
				}
			}
		})
	}
}

// TestLargeHeader sends more than the server reads.
func TestLargeHeader(t *testing.T) {
	address := servePipe(t, plegtest.New(), "")
	for size, want := range map[int]int{15 << 10: http.StatusOK, 21 << 10: http.StatusRequestHeaderFieldsTooLarge, 32 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		if answer := fetch(t, "http://"+address+"/livez", "Cookie", strings.Repeat("c", size)); answer.StatusCode != want {
			t.Errorf("%d bytes of headers = %d, want %d", size, answer.StatusCode, want)
		}
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

// TestServeHTTP2 streams events, and reads how many requests a connection may send.
func TestServeHTTP2(t *testing.T) {
	cert := newCertificate(t)
	path := cert.config(t, "")
	kit.Must(t, httpserver.CheckWebConfig(path))
	runtime := plegtest.New()
	runtime.Set("shop/a", "c=running /s=running")
	address := servePipe(t, runtime, path)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool}, ForceAttemptHTTP2: true}
	client, err := transport.NewClientConn(t.Context(), "https", address)
	kit.Must(t, err)
	defer client.Close()
	request := newRequest(t, "https://"+address+"/events?replay&bookmarks")
	request.Host = "node.example" // the names in the certificate count
	answer, err := client.RoundTrip(request)
	kit.Must(t, err)
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for line := ""; !strings.HasPrefix(line, "event: Bookmark"); {
		line, err = lines.ReadString('\n')
		kit.Must(t, err)
	}
	if n := client.InFlight() + client.Available(); n != 32 || answer.ProtoMajor != 2 {
		t.Errorf("a connection may have %d requests, want 32", n)
	}
}
