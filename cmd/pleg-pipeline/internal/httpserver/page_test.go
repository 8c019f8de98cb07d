package httpserver_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s has the policy %q, want a strict one", url, policy)
		}
	}
	for _, url := range []string{"/page/", "/page", "/page/index.html", "/page/nothing.js", "/page/../httpserver.go", "/index.html"} {
		if answer := get(t, h, url); answer.StatusCode == http.StatusOK {
			t.Errorf("%s is served", url)
		}
	}
}

// TestPageNamesNoOtherHost looks for addresses in the files of the page.
func TestPageNamesNoOtherHost(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	h := httpserver.Handler(options(pipe))
	for _, url := range pageURLs(t) {
		text := strings.ReplaceAll(body(t, get(t, h, url)), `"http://www.w3.org/2000/svg"`, "")
		if found := regexp.MustCompile(`(?i)https?:|wss?:|["'(]//|innerHTML|\beval\(|\bimport\(`).FindString(text); found != "" {
			t.Errorf("%s has %q", url, found)
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

// TestStagesNameHungPods makes the inspection of one pod hang until it is quarantined. The page
// asks for the pods that wait.
func TestStagesNameHungPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/cart", "c=running /s=running")
		pipe, _ := newPipe(t, runtime, pipeline.Options{InspectTimeout: 10 * time.Second})
		h := httpserver.Handler(options(pipe))
		for _, want := range []struct{ after, waiting, quarantined int }{{2, 0, 0}, {5, 1, 0}, {20, 1, 1}} {
			time.Sleep(time.Duration(want.after) * time.Second)
			code, text := ask(t, h, "GET", "/stages")
			var got view.Figures
			if err := json.Unmarshal([]byte(text), &got); code != http.StatusOK || err != nil {
				t.Fatalf("/stages = %d %q: %v", code, text, err)
			}
			if got.Epoch != pipe.Epoch() || len(got.Waiting) != want.waiting || got.Differ.Quarantined != want.quarantined {
				t.Errorf("/stages = %+v, want %+v", got, want)
			}
			runtime.SetInspectFault(plegtest.Delay(time.Hour))
			runtime.Set("shop/cart", "c=exited /s=running")
		}
		runtime.SetInspectFault(nil)
		time.Sleep(time.Minute)
	})
}

// A page of another site may neither read what names pods nor hold its slots.
func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
		time.Sleep(1500 * time.Millisecond)
		h := httpserver.Handler(options(pipe))
		for _, test := range []struct {
			path, site, mode string
			code             int
		}{
			{"/pods", "", "", 200},
			{"/pods", "same-origin", "cors", 200},
			{"/pods", "none", "navigate", 200},
			{"/pods", "cross-site", "navigate", 200},
			{"/pods", "cross-site", "no-cors", 403},
			{"/stages", "cross-site", "cors", 403},
			{"/events", "cross-site", "no-cors", 403},
			{"/", "cross-site", "navigate", 200},
		} {
			r := httptest.NewRequestWithContext(t.Context(), "GET", test.path, nil)
			r.Header.Set("Sec-Fetch-Site", test.site)
			r.Header.Set("Sec-Fetch-Mode", test.mode)
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			if answer.Code != test.code {
				t.Errorf("%s from %q, %q = %d %s, want %d", test.path, test.site, test.mode, answer.Code, answer.Body, test.code)
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"} {
				if got := answer.Header().Get(name); got != want {
					t.Errorf("%s: %s = %q, want %q", test.path, name, got, want)
				}
			}
		}
	})
}
