package httpserver_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// users has the user jo with the password "secret".
const users = "basic_auth_users:\n  jo: $2a$04$oulzlyBHABGVms2WBELgwuPaHoiFSNNrzT7pYv2440S2lbW84d4x6\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHidePods(t *testing.T) {
	for _, test := range []struct{ address, config, hidden string }{
		{"127.0.0.1:9090", "", ""},
		{"[::1]:9090", "", ""},
		{"0.0.0.0:9090", "", "use --web-config"},
		{"[::]:9090", "", "use --web-config"},
		{"192.0.2.1:9090", "", "use --web-config"},
		{"0.0.0.0:9090", users, "no tls_server_config"},
		{"0.0.0.0:9090", users + "tls_server_config: {cert_file: a, key_file: b}", ""},
		{"0.0.0.0:9090", "tls_server_config: {client_auth_type: RequireAndVerifyClientCert}", ""},
		{"0.0.0.0:9090", "tls_server_config: {client_auth_type: RequestClientCert}", "neither basic_auth_users nor"},
		{"0.0.0.0:9090", "http_server_config: {http2: false}", "neither basic_auth_users nor"},
		{"0.0.0.0:9090", "{", "read web configuration"},
	} {
		address, err := net.ResolveTCPAddr("tcp", test.address)
		if err != nil {
			t.Fatal(err)
		}
		path := ""
		if test.config != "" {
			path = write(t, test.config)
		}
		err = httpserver.HidePods(address, path)
		if (err == nil) != (test.hidden == "") || err != nil && !strings.Contains(err.Error(), test.hidden) {
			t.Errorf("HidePods(%s, %q) = %v, want %q", test.address, test.config, err, test.hidden)
		}
	}
}

func TestHiddenPods(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	o := options(pipe)
	o.HidePods = func() error { return errors.New("not to you") }
	h := httpserver.Handler(o)
	for _, path := range []string{"/pods", "/pods/x", "/events"} {
		if code, text := ask(t, h, "GET", path); code != http.StatusForbidden || text != "not to you\n" {
			t.Errorf("%s = %d %q, want 403 and why", path, code, text)
		}
	}
	if code, _ := ask(t, h, "GET", "/metrics"); code != http.StatusOK {
		t.Errorf("/metrics = %d, want 200", code)
	}
}

func TestServeAsksForPassword(t *testing.T) {
	path := write(t, users)
	if err := httpserver.CheckWebConfig(path); err != nil {
		t.Fatal(err)
	}
	address := servePipe(t, plegtest.New(), path)
	for login, want := range map[string]int{"": http.StatusUnauthorized, "jo:wrong@": http.StatusUnauthorized, "jo:secret@": http.StatusOK} {
		if answer := fetch(t, fmt.Sprintf("http://%s%s/events?replay", login, address)); answer.StatusCode != want {
			t.Errorf("%q = %d, want %d", login, answer.StatusCode, want)
		}
	}
}

func TestCheckWebConfigRejectsBadFiles(t *testing.T) {
	for _, path := range []string{"/nonexistent/web.yaml", write(t, "basic_auth: {}"), write(t, "tls_server_config: {cert_file: /nonexistent}")} {
		if err := httpserver.CheckWebConfig(path); err == nil {
			t.Errorf("CheckWebConfig(%s) = nil, want an error", path)
		}
	}
	if err := httpserver.CheckWebConfig(""); err != nil {
		t.Errorf("no file: %v", err)
	}
}

// TestHiddenPodsFollowTheConfiguration removes the users from the configuration of a
// running server.
func TestHiddenPodsFollowTheConfiguration(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{RelistPeriod: fast})
	path := write(t, users+"tls_server_config: {cert_file: a, key_file: b}")
	o := options(pipe)
	o.HidePods = func() error { return httpserver.HidePods(&net.TCPAddr{IP: net.IPv4zero}, path) }
	h := httpserver.Handler(o)
	if code, text := ask(t, h, "GET", "/pods"); code != http.StatusOK {
		t.Errorf("/pods = %d %q, want 200", code, text)
	}
	if err := os.WriteFile(path, []byte("tls_server_config: {cert_file: a, key_file: b}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := ask(t, h, "GET", "/pods"); code != http.StatusForbidden {
		t.Errorf("/pods = %d %q, want 403: no password protects it", code, text)
	}
}

// TestReboundNames sends requests for other host names to the loopback address, as a
// browser does after DNS rebinding.
func TestReboundNames(t *testing.T) {
	address := servePipe(t, plegtest.New(), "")
	for _, test := range []struct {
		path, host string
		want       int
	}{
		{"/pods", "", http.StatusOK},
		{"/pods", "localhost:9090", http.StatusOK},
		{"/pods", "localhost", http.StatusOK},
		{"/pods", "[::1]:9090", http.StatusOK},
		{"/pods", "evil.example", http.StatusForbidden},
		{"/pods", "evil.example:9090", http.StatusForbidden},
		{"/pods/x", "evil.example", http.StatusForbidden},
		{"/events", "evil.example", http.StatusForbidden},
		{"/metrics", "node-1.example", http.StatusOK},
	} {
		if answer := fetch(t, "http://"+address+test.path, "Host", test.host); answer.StatusCode != test.want {
			t.Errorf("%s of %q = %d, want %d", test.path, test.host, answer.StatusCode, test.want)
		}
	}
}
