package httpserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
	"golang.org/x/crypto/bcrypt"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestPasswordChecksAreBounded: those who guess delay nobody for long.
func TestPasswordChecksAreBounded(t *testing.T) {
	begin, hosts := httpserver.BeginCheck()
	var ends []func()
	for host := range httpserver.MaxChecks / httpserver.MaxHostChecks {
		for range httpserver.MaxHostChecks {
			end, err := begin(fmt.Sprint(host))
			if err != nil {
				t.Fatalf("host %d: %v", host, err)
			}
			ends = append(ends, end)
		}
		if _, err := begin(fmt.Sprint(host)); err == nil {
			t.Errorf("host %d has more than %d checks", host, httpserver.MaxHostChecks)
		}
	}
	if _, err := begin("another"); err == nil {
		t.Errorf("there are more than %d checks", httpserver.MaxChecks)
	}
	ends[0]()
	if _, err := begin("another"); err != nil {
		t.Errorf("after the end of one: %v", err)
	}
	for _, end := range ends[1:] {
		end()
	}
	if n := hosts(); n != 1 {
		t.Errorf("%d hosts are remembered, want the one that has a check", n)
	}
}

// The check of a password takes as long for a user who does not exist.
func TestUnknownUsersCostAsMuch(t *testing.T) {
	text := "basic_auth_users:\n"
	for name, cost := range map[string]int{"a": 4, "b": 6, "c": 5} {
		hash, err := bcrypt.GenerateFromPassword([]byte("secret"), cost)
		kit.Must(t, err)
		text += fmt.Sprintf("  %s: %s\n", name, hash)
	}
	var c web.Config
	kit.Must(t, yaml.Unmarshal([]byte(text), &c))
	if cost, err := bcrypt.Cost(httpserver.Costliest(&c)); err != nil || cost != 6 {
		t.Errorf("cost %d, %v, want 6", cost, err)
	}
}

// TestChangedPassword: the old one is forgotten, though it was correct.
func TestChangedPassword(t *testing.T) {
	path := write(t, users)
	url := "http://jo:secret@" + servePipe(t, plegtest.New(), path) + "/metrics"
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusUnauthorized} {
		if want != http.StatusOK {
			hash, err := bcrypt.GenerateFromPassword([]byte("another"), bcrypt.MinCost)
			kit.Must(t, err)
			rewrite(t, path, "basic_auth_users:\n  jo: "+string(hash)+"\n")
		}
		if answer := fetch(t, url); answer.StatusCode != want {
			t.Errorf("GET /metrics = %d, want %d", answer.StatusCode, want)
		}
	}
}

// TestRateLimit: the limit of the web configuration does not concern probes, its headers do.
func TestRateLimit(t *testing.T) {
	address := servePipe(t, plegtest.New(), write(t, "rate_limit: {interval: 1h, burst: 2}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n"))
	for n, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		for path, code := range map[string]int{"/metrics": want, "/livez": http.StatusOK} {
			answer := fetch(t, "http://"+address+path)
			if answer.StatusCode != code || answer.Header.Get("X-Frame-Options") != "deny" || (code == http.StatusTooManyRequests) != (answer.Header.Get("Retry-After") == "1") {
				t.Errorf("request %d of %s = %d %v, want %d", n, path, answer.StatusCode, answer.Header, code)
			}
		}
	}
	if answer := fetch(t, "http://"+address+"/livez", "Cookie", strings.Repeat("c", 32<<10)); answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("32 KiB of headers = %d, want 431", answer.StatusCode)
	}
}
