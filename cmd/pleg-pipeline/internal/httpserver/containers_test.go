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

func TestContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		first, second := strings.Repeat("7d", 32), "7d"+strings.Repeat("0", 62)
		runtime.Set("shop/a", "c=exited /s=running")
		runtime.Set("shop/b", first+"=running "+second+"=running")
		pipe, stop := newPipe(t, runtime, pipeline.Options{})
		time.Sleep(time.Second / 2)
		h := httpserver.Handler(options(pipe))
		for path, want := range map[string]struct {
			code int
			text string
		}{
			"/containers/c":                  {http.StatusOK, `"exitCode":3,"reason":"Error","sandbox":false,"podUID":"shop/a"`},
			"/containers/s?path":             {http.StatusOK, `"podLabels":{"pod":"a"}`},
			"/containers/cri-o://c":          {http.StatusOK, `"id":"c"`},
			"/containers/cri-o:%2F%2Fc":      {http.StatusOK, `"id":"c"`},
			"/containers/7d7":                {http.StatusOK, `"id":"` + first},
			"/containers/7d":                 {http.StatusBadRequest, "several ids begin with 7d"},
			"/containers/x":                  {http.StatusServiceUnavailable, "not known yet"},
			"/containers/x?wait=5s":          {http.StatusNotFound, "no container of this node"},
			"/containers?pid=1":              {http.StatusNotFound, "no container of this node"},
			"/containers":                    {http.StatusBadRequest, "exactly one"},
			"/containers/c?pid=1":            {http.StatusBadRequest, "exactly one"},
			"/containers?pid=one":            {http.StatusBadRequest, `pid: "one" is not valid`},
			"/containers?pid=-1":             {http.StatusBadRequest, "PID must be positive"},
			"/containers?cgroup=-1":          {http.StatusBadRequest, `cgroup: "-1" is not valid`},
			"/containers?pid=1&wait=11s":     {http.StatusBadRequest, "wait: 11s is more than 10s"},
			"/containers/x?wait=10s":         {http.StatusNotFound, "no container of this node"},
			"/containers?pid=1&wait=long":    {http.StatusBadRequest, `wait: "long" is not valid`},
			"/containers?pid=1&weight=heavy": {http.StatusBadRequest, "weight"},
		} {
			if code, text := ask(t, h, "GET", path); code != want.code || !strings.Contains(text, want.text) {
				t.Errorf("GET %s = %d %q, want %d %q", path, code, text, want.code, want.text)
			}
		}
		stop()
		if code, text := ask(t, h, "GET", "/containers/x?wait=5s"); code != http.StatusServiceUnavailable || !strings.Contains(text, "has stopped") {
			t.Errorf("after the end: %d %q", code, text)
		}
	})
}
