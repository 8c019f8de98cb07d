package httpserver_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// ask calls a handler directly.
func ask(t *testing.T, h http.Handler, method, url string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, url, nil))
	return answer.Code, answer.Body.String()
}

func TestPaths(t *testing.T) {
	const never = "pleg has yet to be successful"
	for _, test := range []struct {
		name   string
		down   bool
		method string
		url    string
		code   int
		body   string
	}{
		{"live", false, "GET", "/livez", 200, "ok"},
		{"live in words", false, "GET", "/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"},
		{"live without a runtime", true, "GET", "/livez", 200, "ok"},
		{"ready", false, "GET", "/readyz", 200, "ok"},
		{"ready in words", false, "GET", "/readyz?verbose=1", 200, "[+]ping ok\n[+]pleg ok\n[+]inspections ok\n[+]quarantine ok\nreadyz check passed\n"},
		{"not ready", true, "GET", "/readyz", 503, "[+]ping ok\n[-]pleg failed: " + never + ": list pods: down\n[+]inspections ok\n[+]quarantine ok\nreadyz check failed\n"},
		{"metrics", false, "GET", "/metrics", 200, "# HELP temperature_celsius A temperature.\n# TYPE temperature_celsius gauge\ntemperature_celsius 0\n"},
		{"another path", false, "GET", "/", 404, "404 page not found\n"},
		{"another method", false, "POST", "/livez", 405, "Method Not Allowed\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := plegtest.New()
				if test.down {
					runtime.SetListFault(plegtest.Fail(errors.New("down")))
				}
				pipe, _ := newPipe(t, runtime, pipeline.Options{})
				time.Sleep(1500 * time.Millisecond)
				if code, got := ask(t, httpserver.Handler(options(pipe)), test.method, test.url); code != test.code || got != test.body {
					t.Errorf("%s %s = %d %q, want %d %q", test.method, test.url, code, got, test.code, test.body)
				}
			})
		})
	}
}

// TestReadyNamesBacklog makes inspections hang: a few are named, too many fail the check.
func TestReadyNamesBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/known", "c=running /s=running")
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		o := options(pipe)
		o.MaxBacklog = 2
		open := httpserver.Handler(o)
		o.HidePods = func() error { return errors.New("no") }
		closed := httpserver.Handler(o)
		time.Sleep(1500 * time.Millisecond)
		runtime.SetInspectFault(plegtest.Delay(time.Hour))
		runtime.Set("shop/known", "c=exited /s=running")
		runtime.Set("shop/new", "c=running /s=running")
		expect := func(h http.Handler, code int, want string) {
			t.Helper()
			if got, text := ask(t, h, "GET", "/readyz?verbose"); got != code || !strings.Contains(text, want) {
				t.Errorf("/readyz = %d %q, want %d %q", got, text, code, want)
			}
		}
		time.Sleep(time.Minute)
		expect(open, 200, "[+]inspections ok: 2 pods wait for the inspector, shop/name-shop/known (shop/known) for 59.5s, ")
		expect(open, 200, ", shop/new for 59.5s\n")
		expect(closed, 200, "[+]inspections ok: 2 pods wait for the inspector, one for 59.5s\n")
		runtime.Set("shop/newer", "c=running /s=running")
		time.Sleep(20 * time.Second)
		expect(open, 200, "3 pods wait")
		time.Sleep(20 * time.Second)
		expect(open, 503, "[-]inspections failed: 3 of 3 pods wait for the inspector, ")
		expect(open, 503, "at most 2 may wait for more than 30s\n")
		runtime.SetInspectFault(nil)
		time.Sleep(2 * time.Minute)
		expect(open, 200, "[+]inspections ok\n")
	})
}

// TestReadyNamesQuarantine makes the inspections of a pod hang repeatedly.
func TestReadyNamesQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.SetInspectFault(plegtest.Delay(time.Hour))
		runtime.Set("shop/cart", "c=running /s=running")
		pipe, _ := newPipe(t, runtime, pipeline.Options{InspectTimeout: 10 * time.Second})
		o := options(pipe)
		open := httpserver.Handler(o)
		o.HidePods = func() error { return errors.New("no") }
		closed := httpserver.Handler(o)
		expect := func(h http.Handler, want string) {
			t.Helper()
			if got, text := ask(t, h, "GET", "/readyz?verbose"); got != 200 || !strings.Contains(text, want) {
				t.Errorf("/readyz = %d %q, want 200 %q", got, text, want)
			}
		}
		time.Sleep(9500 * time.Millisecond)
		expect(open, "[+]quarantine ok\n")
		// It hangs until 10 s, then again for 4 s from the relist after that, and
		// from the one a second later.
		time.Sleep(13 * time.Second)
		expect(open, "[+]quarantine ok: 1 pod hangs, shop/name-shop/cart (shop/cart) for ")
		expect(open, " in a row, next try in ")
		expect(closed, "[+]quarantine ok: 1 pod hangs\n")
		runtime.SetInspectFault(nil)
		time.Sleep(10 * time.Second)
		expect(open, "[+]quarantine ok\n")
	})
}
