package httpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// pageURLs returns the paths of the page and its files.
func pageURLs(t *testing.T) []string {
	t.Helper()
	urls := []string{"/"}
	files, err := fs.Glob(os.DirFS("page"), "*")
	kit.Must(t, err)
	for _, name := range files {
		if name != "index.html" {
			urls = append(urls, "/page/"+name)
		}
	}
	return urls
}

func get(t *testing.T, h http.Handler, url string) *http.Response {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
	return answer.Result()
}

func TestPageIsServed(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	h := httpserver.Handler(options(pipe))
	for _, url := range pageURLs(t) {
		answer := get(t, h, url)
		for name, want := range map[string]string{"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-cache, private"} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%s: %s = %q, want %q", url, name, got, want)
			}
		}
		policy := answer.Header.Get("Content-Security-Policy")
		if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") == "" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s = %d %v", url, answer.StatusCode, answer.Header)
		}
		if want := "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
			"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"; policy != want {
			t.Errorf("%s has the policy %q, want %q", url, policy, want)
		}
		for part := range strings.SplitSeq(policy, "; ") { // no other host, and no text as HTML
			if name, from, _ := strings.Cut(part, " "); !slices.Contains([]string{"'none'", "'self'", "'script'"}, from) {
				t.Errorf("%s: %s allows %s", url, name, from)
			}
		}
		if !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.HasSuffix(policy, "; require-trusted-types-for 'script'; trusted-types 'none'") {
			t.Errorf("%s has the policy %q, want a strict one", url, policy)
		}
	}
	for _, url := range []string{"/page/", "/page", "/page/index.html", "/page/nothing.js", "/page/../httpserver.go", "/index.html"} {
		if answer := get(t, h, url); answer.StatusCode == http.StatusOK {
			t.Errorf("%s is served", url)
		}
	}
}

// TestPageHasNoWords: the page shows types and states that it does not know. It knows only the marks
// that it acts upon.
func TestPageHasNoWords(t *testing.T) {
	files, err := fs.Glob(os.DirFS("page"), "*s") // JavaScript and CSS
	kit.Must(t, err)
	words := view.States()
	for _, typ := range eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest) {
		words = append(words, string(typ), eventtype.Of(typ).Name)
	}
	for _, name := range files {
		text, err := os.ReadFile("page/" + name)
		kit.Must(t, err)
		for _, word := range words {
			for _, quoted := range []string{"'" + word + "'", `"` + word + `"`, "=" + word + "]"} {
				if strings.Contains(string(text), quoted) {
					t.Errorf("%s has %s, which the server should say", name, quoted)
				}
			}
		}
	}
}

// TestPageWithoutADocument runs testdata/modules.js, and testdata/parts.js with a document in memory, where there is a Node.js.
// The tests in tests/real/browser use a browser.
func TestPageWithoutADocument(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no Node.js: ", err)
	}
	dir := t.TempDir()
	kit.Must(t, errors.Join(os.CopyFS(dir, os.DirFS("page")), os.CopyFS(dir, os.DirFS("testdata"))))
	kit.Must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600))
	command := exec.CommandContext(t.Context(), node, "--import=./modules.js", "./parts.js")
	command.Dir, command.Env = dir, []string{"TZ=UTC"}
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPageIsClosedWithThePods: a client that may not see pods gets no path that names them.
func TestPageIsClosedWithThePods(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	o := options(pipe)
	o.Address = everywhere
	h := httpserver.Handler(o)
	for _, url := range append(pageURLs(t), "/stages", "/hour", "/pods", "/pods/x", "/events") {
		if code, text := ask(t, h, "GET", url); code != http.StatusForbidden || !strings.Contains(text, "use --web-config") {
			t.Errorf("%s = %d %q, want 403 and why", url, code, text)
		}
	}
	if code, _ := ask(t, h, "GET", "/metrics"); code != http.StatusOK {
		t.Errorf("/metrics = %d, want 200", code)
	}
}

// The name of the node and of its runtime are in the figures, if they are known.
func TestNamesOfTheNode(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	o := options(pipe)
	named := o
	named.Runtime = func() string { return "crio 1" }
	unnamed := named
	named.Node = "n7"
	for _, test := range []struct {
		httpserver.Options
		node, runtime any
	}{{o, nil, nil}, {unnamed, nil, "crio 1"}, {named, "n7", "crio 1"}} {
		var got map[string]any
		if _, text := ask(t, httpserver.Handler(test.Options), "GET", "/stages"); json.Unmarshal([]byte(text), &got) != nil || got["node"] != test.node || got["runtime"] != test.runtime || got["epoch"] != pipe.Epoch() {
			t.Errorf("/stages = %s, want the node %v and the runtime %v of the pipeline %s", text, test.node, test.runtime, pipe.Epoch())
		}
	}
}

// TestHourHasTheWorst makes lists and then an inspection hang for less than ten seconds each, makes lists
// fail, and waits for more than an hour.
func TestHourHasTheWorst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/cart", "c=running /s=running")
		runtime.Set("shop/web", "c=running /s=running")
		registry := prometheus.NewRegistry()
		pipe, _ := newPipe(t, runtime, pipeline.Options{Registerer: registry})
		o := options(pipe)
		o.Gatherer = registry
		o.Hour = httpserver.NewHour(pipe, o.Gatherer)
		kit.Run(t, func(ctx context.Context) error { return o.Hour.Run(ctx) })
		h := httpserver.Handler(o)
		hour := func() (points struct {
			PeriodSeconds float64
			Until         time.Time
			ListSeconds   []float64
			Hung          []int
			Events        []uint64
		},
		) {
			if code, text := ask(t, h, http.MethodGet, "/hour"); code != http.StatusOK || json.Unmarshal([]byte(text), &points) != nil {
				t.Fatalf("/hour = %d %q", code, text)
			}
			return points
		}
		time.Sleep(3500 * time.Millisecond)
		runtime.Set("shop/first", "c=running /s=running")
		time.Sleep(time.Second)
		if events := hour().Events; !slices.Equal(events, []uint64{3}) {
			t.Errorf("the first point has the events %v, want 3", events)
		}
		time.Sleep(16 * time.Second)
		runtime.SetListFault(plegtest.Delay(5 * time.Second))
		time.Sleep(2 * time.Second)
		if list := hour().ListSeconds; len(list) != 3 || list[2] < 0.5 {
			t.Errorf("while a list hangs: %v seconds", list)
		}
		runtime.SetListFault(nil)
		time.Sleep(10 * time.Second)
		runtime.SetPodFault("shop/cart", plegtest.Delay(5*time.Second))
		runtime.Set("shop/cart", "c=exited /s=running")
		time.Sleep(2 * time.Second)
		runtime.Set("shop/web", "c=exited /s=running") // the inspection of shop/web overtakes
		runtime.SetPodFault("shop/cart", nil)
		time.Sleep(6 * time.Second)
		got := hour()
		if len(got.ListSeconds) != 4 || len(got.Hung) != 4 || len(got.Events) != 4 || got.PeriodSeconds != 10 || !got.Until.Equal(time.Now()) {
			t.Fatalf("/hour = %+v, want four points of ten seconds", got)
		}
		if list := got.ListSeconds; !slices.Equal(list, []float64{0, 0, 5, 0}) {
			t.Errorf("lists took %v seconds, want 5 in the third point alone", list)
		}
		if hung, events := got.Hung, got.Events; hung[2] != 0 || hung[3] != 1 || events[1] != 0 || events[3] != 2 {
			t.Errorf("hung = %v, events = %v, want one pod and two events in the fourth point", hung, events)
		}
		runtime.SetListFault(plegtest.Fail(errors.New("broken")))
		time.Sleep(8 * time.Second)
		runtime.SetListFault(nil)
		time.Sleep(10 * time.Second)
		if list := hour().ListSeconds; !slices.Equal(list, []float64{0, 0, 5, 0, 8, 0}) {
			t.Errorf("lists failed for 8 s: %v, want that in the fifth point alone", list)
		}
		time.Sleep(time.Hour)
		if got := hour(); len(got.ListSeconds) != 360 || len(got.Hung) != 360 || len(got.Events) != 360 || got.ListSeconds[0] > 0.1 {
			t.Errorf("after an hour %d points, the first %v, want 360 of each figure without the list that hung", len(got.ListSeconds), got.ListSeconds[0])
		}
		runtime.SetPodFault("shop/cart", plegtest.Hang)
		runtime.Set("shop/cart", "c=running /s=running")
		time.Sleep(15 * time.Minute)
		if hung := hour().Hung[360-6*10:]; slices.Min(hung) != 1 || slices.Max(hung) != 1 {
			t.Errorf("hung = %v, want one pod, also between two tries", hung)
		}
	})
}
