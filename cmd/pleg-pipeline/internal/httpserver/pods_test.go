package httpserver_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// Before the first list is committed, an empty list or "no such pod" would say that pods are gone.
func TestPodsAreNotGoneBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("web", "c=running")
		runtime.SetListFault(plegtest.Delay(time.Minute))
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		synctest.Wait()
		h := httpserver.Handler(options(pipe))
		for _, path := range []string{"/pods", "/pods/web", "/pods/unknown"} {
			if code, text := ask(t, h, "GET", path); code != http.StatusServiceUnavailable || !strings.Contains(text, "first list") {
				t.Errorf("GET %s = %d %q, want 503 and the reason", path, code, text)
			}
		}
		time.Sleep(2 * time.Minute)
		for path, want := range map[string]int{"/pods": http.StatusOK, "/pods/web": http.StatusOK, "/pods/unknown": http.StatusNotFound} {
			if code, text := ask(t, h, "GET", path); code != want {
				t.Errorf("GET %s = %d %q, want %d", path, code, text, want)
			}
		}
	})
}
