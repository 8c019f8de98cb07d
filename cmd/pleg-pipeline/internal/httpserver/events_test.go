package httpserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestEventsReplayAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/a", "c=running /s=running")
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		l := bufconn.Listen(buffer)
		serveOn(t, l, httpserver.Handler(options(pipe)), "")
		time.Sleep(1500 * time.Millisecond)
		replayed := events(t, l, "?replay&bookmarks=true", "")
		if got := replayed[1]; got.id != pipe.Epoch()+":2" || got.event != "ContainerStarted" || !strings.Contains(got.data, `"seq":2`) {
			t.Errorf("the second event is %+v, want a start with its position", got)
		}
		runtime.Set("shop/a", "c=exited /s=running")
		time.Sleep(2 * time.Second)
		runtime.Set("shop/a", "/s=running")
		time.Sleep(2 * time.Second)
		all := events(t, l, "?since=1h", "")
		died := all[slices.IndexFunc(all, func(m message) bool { return m.event == "ContainerDied" })].id
		for _, test := range []struct{ name, query, id, want string }{
			{"behind the last", "", died, "ContainerRemoved Synced"},
			{"the position in the data", "?since=" + died, "", "ContainerRemoved Synced"},
			{"the header is newer", "?replay&since=0:0", died, "ContainerRemoved Synced"},
			{"a time", "?since=1h&sandboxes=false", "", "ContainerStarted ContainerDied ContainerRemoved Synced"},
			{"from now on", "?since=0s", "", "Synced"},
			{"another process", "", "0000:1", "Gap ContainerStarted Synced"},
		} {
			var types []string
			for _, m := range events(t, l, test.query, test.id) {
				types = append(types, m.event)
				if hasID := m.id != ""; hasID == (m.event == "Gap") {
					t.Errorf("%s: %s has the id %q", test.name, m.event, m.id)
				}
			}
			if got := strings.Join(types, " "); got != test.want {
				t.Errorf("%s: events %s, want %s", test.name, got, test.want)
			}
		}
	})
}

func TestEventsRefusals(t *testing.T) {
	url := "http://" + servePipe(t, plegtest.New(), "")
	for _, test := range []struct{ query, id, want string }{
		{"?namspace=shop", "", `unknown parameter "namspace": want bookmarks, name, namespace, network, pod, replay, sandboxes, selector, since, type, words`},
		{"?replay=maybe", "", `replay: "maybe" is neither true nor false`},
		{"?bookmarks=perhaps&replay=maybe", "", `replay: "maybe" is neither true nor false`},
		{"?selector=((", "", `subscribe: "((" is not a label selector: "((" does not begin with KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUES) or KEY notin (VALUES)`},
		{"?selector=" + strings.Repeat("!a,", 64) + "!a", "", "subscribe: the label selector has 65 requirements, the limit is 64"},
		{"?type=ContainerBorn", "", `subscribe: Types has the unknown event type "ContainerBorn": known are [ContainerStarted ContainerDied ContainerRemoved PodSync NetworkSetupCompleted NetworkFailed ContainerCreated ContainerCorrected]`},
		{"?since=x", "", `"x" is not a position: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120`},
		{"?since=475", "", `"475" has no epoch, so it may be a number of another pipeline: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120`},
		{"?since=-1h", "", `"-1h" is not a position: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120`},
		{"?name=" + strings.Repeat("x", 101), "", "name has 101 bytes, the limit is 100"},
		{"?name=" + strings.Repeat("%C3%A9", 51), "", "name has 102 bytes, the limit is 100"},
		{"", "what?", `"what?" is not a position: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120`},
		{"?a;b", "", "invalid semicolon separator in query"},
	} {
		answer := fetch(t, url+"/events"+test.query, "Last-Event-ID", test.id)
		if answer.StatusCode != http.StatusBadRequest { // a stream, whose body has no end
			t.Errorf("%q %q = %d, want 400", test.query, test.id, answer.StatusCode)
		} else if text := body(t, answer); text != test.want+"\n" {
			t.Errorf("%q %q = 400 %q, want %q", test.query, test.id, text, test.want)
		}
	}
}

func TestEventsBoundsStreams(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{RelistPeriod: fast})
	o := options(pipe)
	o.MaxStreams = 2
	url := "http://" + serve(t, httpserver.Handler(o), "")
	first := fetch(t, url+"/events?replay")
	fetch(t, url+"/events?replay")
	answer := fetch(t, url+"/events")
	if text := body(t, answer); answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "10" ||
		text != "too many event streams: 2 at a time\n" {
		t.Errorf("the third stream = %d %q, want 503 and why", answer.StatusCode, text)
	}
	_ = first.Body.Close()
	for answer.StatusCode != http.StatusOK { // the first stream ends soon
		answer = fetch(t, url+"/events")
	}
}

// Without an option, 64 clients may follow the events.
func TestStreamsByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
		h := httpserver.Handler(options(pipe))
		ctx, cancel := context.WithCancel(t.Context())
		for range 64 {
			go h.ServeHTTP(deadlines{httptest.NewRecorder()}, httptest.NewRequestWithContext(ctx, "GET", "/events", nil))
		}
		synctest.Wait()
		began := time.Now()
		if code, text := ask(t, h, "GET", "/events"); code != http.StatusServiceUnavailable || text != "too many event streams: 64 at a time\n" || time.Since(began) > 0 {
			t.Errorf("the next stream = %d %q after %v, want 503 at once", code, text, time.Since(began))
		}
		cancel()
	})
}

// A request for the header of a stream alone gets it at once.
func TestHeaderOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began, answer := time.Now(), httptest.NewRecorder()
		httpserver.Handler(options(pipe)).ServeHTTP(deadlines{answer}, httptest.NewRequestWithContext(ctx, "HEAD", "/events", nil))
		if took := time.Since(began); took > 0 || answer.Header().Get("Content-Type") != "text/event-stream" || answer.Body.Len() > 0 {
			t.Errorf("the answer took %v: %v %q", took, answer.Header(), answer.Body)
		}
	})
}

// TestEventsEndWithTheUser: a user who is removed, or whose password changes, keeps no stream.
func TestEventsEndWithTheUser(t *testing.T) {
	const jo, nobody = "basic_auth_users: {jo: hash}", "{}"
	for name, test := range map[string]struct {
		address        net.Addr
		before, config string
		ends           bool
	}{
		"the same":                {nil, jo, jo, false},
		"another one left":        {nil, jo, "basic_auth_users: {jo: hash, ann: hash}", false},
		"removed":                 {nil, jo, "basic_auth_users: {ann: hash}", true},
		"a new password":          {nil, jo, "basic_auth_users: {jo: other}", true},
		"not readable":            {nil, jo, "{", true},
		"no file any more":        {nil, jo, "", true},
		"the first users":         {nil, nobody, "basic_auth_users: {ann: hash}", true},
		"no users any more":       {nil, jo, nobody, false}, // on this machine
		"none, on other machines": {everywhere, jo, nobody, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{Registerer: registry})
				o := options(pipe)
				o.Address, o.WebConfig = test.address, write(t, test.before)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/events", nil)
				r.SetBasicAuth("jo", "secret") // the toolkit has checked it
				r.TLS = &tls.ConnectionState{}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					httpserver.Handler(o).ServeHTTP(deadlines{httptest.NewRecorder()}, r)
				}()
				synctest.Wait()
				if test.config == "" {
					kit.Must(t, os.Remove(o.WebConfig))
				} else {
					kit.Must(t, os.WriteFile(o.WebConfig, []byte(test.config), 0o600))
				}
				select {
				case <-ended:
					if !test.ends {
						t.Error("the stream has ended")
					}
				case <-time.After(time.Minute):
					if test.ends {
						t.Error("the stream goes on")
					}
				}
				cancel()
				began := time.Now()
				if <-ended; time.Since(began) > 0 {
					t.Errorf("the stream of a client that has left ended after %v", time.Since(began))
				}
				synctest.Wait()
				kit.RequireMetric(t, registry, 0, "pleg_subscribers")
			})
		})
	}
}

// deadlines is a recorder that takes deadlines, as the answer of a server does.
type deadlines struct{ *httptest.ResponseRecorder }

// SetWriteDeadline implements the interface of [http.ResponseController].
func (deadlines) SetWriteDeadline(time.Time) error { return nil }

func TestEventsEndWithPipeline(t *testing.T) {
	runtime := plegtest.New()
	pipe, end := newPipe(t, runtime, pipeline.Options{RelistPeriod: fast})
	url := "http://" + serve(t, httpserver.Handler(options(pipe)), "")
	answer := fetch(t, url+"/events?replay")
	end()
	if text := body(t, answer); !strings.HasPrefix(text, "retry: 1000\n\n") {
		t.Errorf("stream = %q, want it to begin with the time to reconnect, and end", text)
	}
	if answer := fetch(t, url+"/events"); answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "10" || body(t, answer) != pleg.ErrStopped.Error()+"\n" {
		t.Errorf("after the end = %d %v, want 503 and why", answer.StatusCode, answer.Header)
	}
}

// connect returns a connection to a server of a runtime.
func connect(t *testing.T, runtime *plegtest.Runtime) net.Conn {
	t.Helper()
	pipe, _ := newPipe(t, runtime, pipeline.Options{})
	l := bufconn.Listen(buffer)
	serveOn(t, l, httpserver.Handler(options(pipe)), "")
	return dial(t, l)
}

// TestSlowClientsLoseTheirConnection connects clients that send slowly, do not read, or send
// nothing.
func TestSlowClientsLoseTheirConnection(t *testing.T) {
	for _, test := range []struct {
		name, request string
		reads         bool
		least, within time.Duration
	}{
		{"sends nothing", "", true, 10 * time.Second, 11 * time.Second},
		{"sends half a request", "GET /livez HT", true, 10 * time.Second, 11 * time.Second},
		{"does not end its header", "GET /livez HTTP/1.1\r\nHost: x\r\n", true, 10 * time.Second, 11 * time.Second},
		{"sends a body slowly", "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", true, 10 * time.Second, 11 * time.Second},
		{"does not read a stream", "GET /events?replay HTTP/1.1\r\nHost: x\r\n\r\n", false, 29 * time.Second, 31 * time.Second},
		{"does not read an answer", "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n", false, 29 * time.Second, 41 * time.Second},
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
				time.Sleep(test.least)
				if _, err := io.WriteString(client, "x"); err != nil {
					t.Errorf("after %v: %v, want that the connection is open", test.least, err)
				}
				time.Sleep(test.within - test.least)
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

// TestEventsWithWords: the page gets the words that it shows of an event, also of a type that it
// does not know.
func TestEventsWithWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/a", "c=running /s=running")
		runtime.Set("shop/\u202e", "c=running /s=running") // turns the text of a terminal
		client := connect(t, runtime)
		go func() {
			time.Sleep(5 * time.Second)
			client.Close()
		}()
		_, _ = io.WriteString(client, "GET /events?words&replay HTTP/1.1\r\nHost: x\r\n\r\n")
		text, _ := io.ReadAll(client)
		for _, want := range []string{`"pod":"shop/name-shop/\u202e"`, `"type":"ContainerStarted"`, `"severity":"good","what":"started","why":"","pod":"shop/name-shop/a","container":"of-c"`, `"container":"(sandbox)"`, `"what":"synced"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("stream = %q, want %s", text, want)
			}
		}
		if strings.Contains(string(text), "event:") || strings.Contains(string(text), "\u202e") {
			t.Errorf("stream = %q, want messages without a name, that can be printed", text)
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
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		kit.Must(t, err)
		text, _ := io.ReadAll(answer.Body)
		want := regexp.MustCompile(`^retry: 1000\n\n(:\n\n){39,41}(id: \w+:\d+\nevent: ContainerStarted\ndata: {.*}\n\n){2}(:\n\n){3,4}$`)
		if !want.Match(text) {
			t.Errorf("stream = %q, want a comment each 15 s, and the events after ten minutes", text)
		}
	})
}

// Each parameter sets its option.
func TestParametersOfEvents(t *testing.T) {
	r := httptest.NewRequest("GET", "/events?name="+strings.Repeat("n", 100)+"&replay&bookmarks=true&namespace=shop&namespace=bank&pod=a,,b,&selector=app%3Dweb&type=ContainerDied&sandboxes=0&network&words&since=epoch:7", nil)
	got, words, err := httpserver.SubscribeOptions(r)
	want := pleg.SubscribeOptions{
		Name: strings.Repeat("n", 100), Replay: true, Bookmarks: true, After: pleg.Position{Epoch: "epoch", Seq: 7},
		Filter: pleg.Filter{
			Types: []pleg.EventType{pleg.ContainerDied}, Namespaces: []string{"shop", "bank"}, PodUIDs: []pleg.PodUID{"a", "b"},
			Selector: "app=web", OmitSandboxes: true, NetworkEvents: true,
		},
	}
	if err != nil || !words || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, words %v, %v\nwant %+v", got, words, err, want)
	}
	for query, age := range map[string]time.Duration{"?words": 0, "?words=1&since=1h": time.Hour} { // the page asks so
		began := time.Now()
		got, words, err := httpserver.SubscribeOptions(httptest.NewRequest("GET", "/events"+query, nil))
		if since := began.Sub(got.Since); err != nil || !words || got.Since.IsZero() != (age == 0) || age > 0 && (since > age || since < age-time.Minute) {
			t.Errorf("%s: got %+v, words %v, %v", query, got, words, err)
		}
	}
	r = httptest.NewRequest("GET", "/events?replay", nil)
	r.Header.Set("Last-Event-ID", "epoch:8")
	got, words, err = httpserver.SubscribeOptions(r)
	if want := (pleg.SubscribeOptions{Name: "http", After: pleg.Position{Epoch: "epoch", Seq: 8}}); err != nil || words || !reflect.DeepEqual(got, want) {
		t.Errorf("again: %+v, words %v, %v\nwant %+v", got, words, err, want)
	}
}
