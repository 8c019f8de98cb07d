package httpserver_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/a", "c=exited /s=running")
		runtime.Set("bank/b", "c=running /s=exited")
		runtime.Set("bank/broken", "c=running /s=running")
		runtime.SetPodFault("bank/broken", plegtest.Fail(errors.New("broken")))
		pipe, _ := newPipe(t, runtime, pipeline.Options{})
		time.Sleep(1500 * time.Millisecond)
		h := httpserver.Handler(options(pipe))
		for _, test := range []struct {
			query string
			want  []string
		}{
			{"", []string{"bank/b notready 1/1", "bank/broken unknown 0/0", "shop/a ready 0/1"}},
			{"?namespace=shop", []string{"shop/a ready 0/1"}},
			{"?namespace=nowhere", nil},
			{"?selector=nosuch", nil},
		} {
			code, text := ask(t, h, "GET", "/pods"+test.query)
			var got struct {
				Epoch string
				Pods  []podview.Pod
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK || got.Epoch != pipe.Epoch() || got.Pods == nil {
				t.Fatalf("/pods%s = %d %q, %v", test.query, code, text, err)
			}
			if len(got.Pods) != len(test.want) {
				t.Fatalf("/pods%s = %s, want %v", test.query, text, test.want)
			}
			for i, p := range got.Pods {
				if is := string(p.UID) + " " + p.State + " " + string(rune('0'+p.Running)) + "/" + string(rune('0'+p.Total)); is != test.want[i] {
					t.Errorf("/pods%s: %s, want %s", test.query, is, test.want[i])
				}
				if (p.UID == "bank/broken") != (p.Error != "") {
					t.Errorf("%s has the error %q", p.UID, p.Error)
				}
			}
		}
		for _, test := range []struct {
			path string
			code int
		}{
			{"/pods/shop/a", 200},
			{"/pods/bank/broken", 200},
			{"/pods/nosuch", 404},
			{"/pods/", 404},
			{"/pods?selector=((", 400},
			{"/pods?namspace=shop", 400},
		} {
			if code, text := ask(t, h, "GET", test.path); code != test.code {
				t.Errorf("%s = %d %q, want %d", test.path, code, text, test.code)
			}
		}
	})
}
