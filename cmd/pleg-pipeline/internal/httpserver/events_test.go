package httpserver_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// shop is a server of a pipeline with one pod.
func shop(t *testing.T, o func(*httpserver.Options)) (runtime *plegtest.Runtime, pipe *pipeline.Pipeline, url string) {
	t.Helper()
	runtime = plegtest.New()
	runtime.Set("shop/a", "c=running /s=running")
	pipe, _ = newPipe(t, runtime, pipeline.Options{RelistPeriod: fast, Inspectors: 1})
	options := options(pipe)
	if o != nil {
		o(&options)
	}
	return runtime, pipe, "http://" + serve(t, httpserver.Handler(options), "")
}

func TestEventsReplayAndResume(t *testing.T) {
	runtime, pipe, url := shop(t, nil)
	stream := watch(t, url+"/events?replay&bookmarks=true")
	var last message
	// The first list may not have happened yet.
	for last.data.Type != pleg.ContainerStarted || last.data.Sandbox {
		last = stream.next()
	}
	if want := fmt.Sprintf("%s:%d", pipe.Epoch(), last.data.Seq); last.id != want || last.event != "ContainerStarted" {
		t.Errorf("id %q and event %q, want %q and ContainerStarted", last.id, last.event, want)
	}
	stream.until(pleg.Bookmark)
	runtime.Set("shop/a", "c=exited /s=running")
	died := stream.until(pleg.ContainerDied)
	at := died[len(died)-1]
	runtime.Set("shop/a", "/s=running")
	stream.until(pleg.ContainerRemoved)

	for _, test := range []struct {
		name, query, id string
		want            []pleg.EventType
	}{
		{"behind the last", "", at.id, []pleg.EventType{pleg.ContainerRemoved, pleg.Synced}},
		{"the position in the data", fmt.Sprintf("?since=%s:%d", at.data.Epoch, at.data.Seq), "", []pleg.EventType{pleg.ContainerRemoved, pleg.Synced}},
		{"the header is newer", "?replay&since=0:0", at.id, []pleg.EventType{pleg.ContainerRemoved, pleg.Synced}},
		{"a time", "?since=1h&sandboxes=false", "", []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved, pleg.Synced}},
		{"another process", "", "0000:1", []pleg.EventType{pleg.Gap, pleg.ContainerStarted, pleg.Synced}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var header []string
			if test.id != "" {
				header = []string{"Last-Event-ID", test.id}
			}
			var types []pleg.EventType
			for _, m := range watch(t, url+"/events"+test.query, header...).until(pleg.Synced) {
				types = append(types, m.data.Type)
				if hasID := m.id != ""; hasID == (m.data.Type == pleg.Gap) {
					t.Errorf("%s has the id %q", m.data.Type, m.id)
				}
			}
			if fmt.Sprint(types) != fmt.Sprint(test.want) {
				t.Errorf("events %v, want %v", types, test.want)
			}
		})
	}
}

func TestEventsFilters(t *testing.T) {
	runtime, pipe, url := shop(t, nil)
	runtime.Set("bank/b", "c=running /s=running")
	for len(pipe.Cache().List()) < 2 {
		watch(t, url+"/events?bookmarks").until(pleg.Bookmark)
	}
	watch(t, url+"/events?bookmarks").until(pleg.Bookmark) // what is in the cache has been delivered
	for _, test := range []struct{ query, want string }{
		{"", "bank/b s, bank/b c, shop/a s, shop/a c"},
		{"&namespace=shop", "shop/a s, shop/a c"},
		{"&namespace=shop,bank&sandboxes=false", "bank/b c, shop/a c"},
		{"&pod=bank/b&sandboxes=false", "bank/b c"},
		{"&selector=pod%3Da&sandboxes=0", "shop/a c"},
		{"&selector=pod+in+(b)&sandboxes=0", "bank/b c"},
		{"&type=ContainerDied", ""},
		{"&type=ContainerDied&type=ContainerStarted&pod=shop/a", "shop/a s, shop/a c"},
	} {
		got := make(map[string]bool)
		for _, m := range watch(t, url+"/events?replay"+test.query).until(pleg.Synced) {
			if m.data.Type != pleg.Synced {
				got[fmt.Sprintf("%s %s", m.data.PodUID, m.data.ContainerID)] = true
			}
		}
		want := strings.Split(test.want, ", ")
		if test.want == "" {
			want = nil
		}
		for _, w := range want {
			if !got[w] {
				t.Errorf("%q: %v, want %q in it", test.query, got, w)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%q: %v, want %v", test.query, got, want)
		}
	}
}

func TestEventsRefusals(t *testing.T) {
	_, _, url := shop(t, nil)
	for _, test := range []struct{ query, id, want string }{
		{"?namspace=shop", "", `unknown parameter "namspace": want bookmarks, name, namespace`},
		{"?replay=maybe", "", `replay: "maybe" is neither true nor false`},
		{"?selector=((", "", `is not a label selector`},
		{"?selector=" + strings.Repeat("!a,", 64) + "!a", "", "65 requirements, the limit is 64"},
		{"?type=ContainerBorn", "", `unknown event type "ContainerBorn"`},
		{"?since=x", "", `"x" is not a position`},
		{"?since=475", "", `"475" has no epoch`},
		{"?name=" + strings.Repeat("x", 101), "", "name has 101 bytes, the limit is 100"},
		{"", "what?", `"what?" is not a position`},
		{"?a;b", "", "semicolon"},
	} {
		answer := fetch(t, url+"/events"+test.query, "Last-Event-ID", test.id)
		if text := body(t, answer); answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, test.want) {
			t.Errorf("%q %q = %d %q, want 400 and %q", test.query, test.id, answer.StatusCode, text, test.want)
		}
	}
}

func TestEventsBoundsStreams(t *testing.T) {
	_, _, url := shop(t, func(o *httpserver.Options) { o.MaxStreams = 2 })
	first := fetch(t, url+"/events?replay")
	fetch(t, url+"/events?replay")
	answer := fetch(t, url+"/events")
	if text := body(t, answer); answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" ||
		!strings.Contains(text, "too many event streams: 2 at a time") {
		t.Errorf("the third stream = %d %q, want 503 and why", answer.StatusCode, text)
	}
	_ = first.Body.Close()
	until(t, url+"/events", http.StatusOK) // the first stream ends soon
}

func TestEventsEndWithPipeline(t *testing.T) {
	runtime := plegtest.New()
	pipe, end := newPipe(t, runtime, pipeline.Options{RelistPeriod: fast})
	url := "http://" + serve(t, httpserver.Handler(options(pipe)), "")
	answer := fetch(t, url+"/events?replay")
	end()
	if text := body(t, answer); !strings.HasPrefix(text, "retry: 1000\n\n") {
		t.Errorf("stream = %q, want it to begin with the time to reconnect, and end", text)
	}
	if answer := fetch(t, url+"/events"); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after the end = %d, want 503", answer.StatusCode)
	}
}

// pipeListener accepts connections in memory, whose deadlines use the bubble's clock.
type pipeListener struct {
	conns chan net.Conn
	close func()
}

func newPipeListener(room int) *pipeListener {
	conns := make(chan net.Conn, room)
	return &pipeListener{conns, sync.OnceFunc(func() { close(conns) })}
}

// connect returns the client's end of a connection that is then accepted.
func (l *pipeListener) connect(t *testing.T) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	l.conns <- server
	return client
}

func (l *pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *pipeListener) Close() error { l.close(); return nil }

func (*pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// connect returns a connection to a server of a runtime.
func connect(t *testing.T, runtime *plegtest.Runtime) net.Conn {
	t.Helper()
	pipe, _ := newPipe(t, runtime, pipeline.Options{})
	l := newPipeListener(1)
	serveOn(t, l, httpserver.Handler(options(pipe)), "")
	return l.connect(t)
}

// TestSlowClientsLoseTheirConnection has clients that send slowly, do not read, or send
// nothing.
func TestSlowClientsLoseTheirConnection(t *testing.T) {
	for _, test := range []struct {
		name, request string
		reads         bool
		least, within time.Duration
	}{
		{"sends nothing", "", true, 0, 11 * time.Second},
		{"sends half a request", "GET /livez HT", true, 0, 11 * time.Second},
		{"does not end its header", "GET /livez HTTP/1.1\r\nHost: x\r\n", true, 0, 11 * time.Second},
		{"sends a body slowly", "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", true, 0, 11 * time.Second},
		{"does not read a stream", "GET /events?replay HTTP/1.1\r\nHost: x\r\n\r\n", false, 0, 31 * time.Second},
		{"does not read an answer", "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n", false, 0, 41 * time.Second},
		{"sends no second request", "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", true, 2 * time.Minute, 121 * time.Second},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			runtime := plegtest.New()
			runtime.Set("shop/a", "c=running /s=running")
			client := connect(t, runtime)
			began := time.Now()
			if _, err := io.WriteString(client, test.request); err != nil {
				t.Fatal(err)
			}
			if !test.reads {
				time.Sleep(test.within)
				synctest.Wait()
			}
			if _, err := io.Copy(io.Discard, client); err != nil {
				t.Errorf("read: %v, want the end", err)
			}
			if took := time.Since(began); took < test.least || took > test.within {
				t.Errorf("the connection ended after %v, want %v to %v", took, test.least, test.within)
			}
		})
	}
}

// TestEventsWithWords: the page gets what it shows of an event, of a type that it need not know.
func TestEventsWithWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/a", "c=running /s=running")
		client := connect(t, runtime)
		go func() {
			time.Sleep(5 * time.Second)
			client.Close()
		}()
		_, _ = io.WriteString(client, "GET /events?words&replay HTTP/1.1\r\nHost: x\r\n\r\n")
		text, _ := io.ReadAll(client)
		for _, want := range []string{`"type":"ContainerStarted"`, `"severity":"good","what":"started","why":"","pod":"shop/name-shop/a","container":"of-c"`, `"container":"(sandbox)"`, `"what":"synced"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("stream = %q, want %s", text, want)
			}
		}
		if strings.Contains(string(text), "event:") {
			t.Errorf("stream = %q, want messages without a name", text)
		}
	})
}

// TestStreamOutlivesRequestTimeout waits long for an event.
func TestStreamOutlivesRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		client := connect(t, runtime)
		go func() {
			time.Sleep(10 * time.Minute)
			runtime.Set("shop/a", "c=running /s=running")
			time.Sleep(time.Minute)
			client.Close()
		}()
		_, _ = io.WriteString(client, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
		text, _ := io.ReadAll(client)
		if n := strings.Count(string(text), ":\n\n"); n < 40 || n > 46 {
			t.Errorf("%d keepalive comments in 11 minutes, want one each 15 s", n)
		}
		if !strings.Contains(string(text), "event: ContainerStarted\n") {
			t.Errorf("stream = %q, want the event after ten minutes", text)
		}
	})
}
