package httpserver_test

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// users has the user jo with the password "secret".
const users = "basic_auth_users:\n  jo: $2a$04$oulzlyBHABGVms2WBELgwuPaHoiFSNNrzT7pYv2440S2lbW84d4x6\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.yaml")
	kit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// everywhere is an address that other machines reach.
var everywhere = &net.TCPAddr{IP: net.IPv4zero, Port: 9090}

func TestHidePods(t *testing.T) {
	cert, other := newCertificate(t), newCertificate(t)
	plain, encrypted := (*tls.ConnectionState)(nil), &tls.ConnectionState{}
	certified, stranger := cert.state(), other.state()
	certificates := cert.text(cert.requires())
	ifGiven := strings.Replace(certificates, "RequireAndVerifyClientCert", "VerifyClientCertIfGiven", 1)
	for _, test := range []struct {
		address, config string
		state           *tls.ConnectionState
		login           string
		hidden          string
	}{
		{"127.0.0.1:9090", "", plain, "", ""},
		{"[::1]:9090", "", plain, "", ""},
		{"127.0.0.1:9090", users, plain, "", "a password is required"},
		{"127.0.0.1:9090", users, plain, "secret", ""},
		{"127.0.0.1:9090", cert.text(""), plain, "", "restart it"},
		{"127.0.0.1:9090", certificates, encrypted, "", "no verified client certificate"},
		{"0.0.0.0:9090", "", plain, "", "use --web-config"},
		{"[::]:9090", "", plain, "", "use --web-config"},
		{"192.0.2.1:9090", "", plain, "", "use --web-config"},
		{"0.0.0.0:9090", users, plain, "secret", "no tls_server_config"},
		{"0.0.0.0:9090", users + cert.text(""), plain, "secret", "restart it"},
		{"0.0.0.0:9090", users + cert.text(""), encrypted, "", "a password is required"},
		{"0.0.0.0:9090", users + cert.text(""), encrypted, "wrong", "password is wrong"},
		{"0.0.0.0:9090", users + cert.text(""), encrypted, "secret", ""},
		{"0.0.0.0:9090", cert.text(""), encrypted, "", "must have basic_auth_users, or"},
		{"0.0.0.0:9090", certificates, plain, "", "restart it"},
		{"0.0.0.0:9090", certificates, encrypted, "", "no verified client certificate"},
		{"0.0.0.0:9090", certificates, stranger, "", "unknown authority"},
		{"0.0.0.0:9090", certificates, certified, "", ""},
		{"0.0.0.0:9090", users + certificates, certified, "", "a password is required"},
		{"0.0.0.0:9090", ifGiven, encrypted, "", "must have basic_auth_users, or"},
		{"0.0.0.0:9090", ifGiven, certified, "", ""},
		{"0.0.0.0:9090", cert.text(", client_auth_type: RequestClientCert"), certified, "", "must have basic_auth_users, or"},
		{"0.0.0.0:9090", "http_server_config: {http2: false}", plain, "", "must have basic_auth_users, or"},
	} {
		address, err := net.ResolveTCPAddr("tcp", test.address)
		kit.Must(t, err)
		path := ""
		if test.config != "" {
			path = write(t, test.config)
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/pods", nil)
		r.TLS = test.state
		if test.login != "" {
			r.SetBasicAuth("jo", test.login)
		}
		err = newAccess(t, address, path).HidePods(r)
		if (err == nil) != (test.hidden == "") || err != nil && !strings.Contains(err.Error(), test.hidden) {
			t.Errorf("HidePods(%s, %q) = %v, want %q", test.address, test.config, err, test.hidden)
		}
	}
}

// rewrite replaces the content of a web configuration.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	kit.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// serveEverywhere serves one pod as if other machines could reach the address.
func serveEverywhere(t *testing.T, webConfig string) (address string) {
	t.Helper()
	runtime := plegtest.New()
	runtime.Set("shop/a", "c=running /s=running")
	return serveAt(t, runtime, everywhere, webConfig)
}

// serveAt serves pods as if the server had another address.
func serveAt(t *testing.T, runtime *plegtest.Runtime, as net.Addr, webConfig string) (address string) {
	t.Helper()
	pipe, _ := newPipe(t, runtime, pipeline.Options{RelistPeriod: fast})
	l, err := httpserver.Listen(t.Context(), "127.0.0.1:0")
	kit.Must(t, err)
	access := newAccess(t, as, webConfig)
	o := options(pipe)
	o.HidePods = access.HidePods
	serveOn(t, l, httpserver.Handler(o), access)
	return l.Addr().String()
}

// expect sends requests on a transport, which keeps its connection.
func expect(t *testing.T, transport *http.Transport, url string, codes map[string]int) {
	t.Helper()
	for path, want := range codes {
		answer, err := transport.RoundTrip(newRequest(t, url+path))
		kit.Must(t, err)
		if text := body(t, answer); answer.StatusCode != want {
			t.Errorf("GET %s = %d %q, want %d", path, answer.StatusCode, text, want)
		}
		_ = answer.Body.Close()
	}
}

// TestPlainServerIgnoresNewTLS adds TLS and authentication to the configuration of a
// server that began without. Its connections are still not encrypted.
func TestPlainServerIgnoresNewTLS(t *testing.T) {
	cert := newCertificate(t)
	path := write(t, "")
	url := "http://" + serveEverywhere(t, path)
	old := new(http.Transport)
	defer old.CloseIdleConnections()
	expect(t, old, url, map[string]int{"/metrics": http.StatusOK, "/pods": http.StatusForbidden})
	for _, config := range []string{cert.text(cert.requires()), cert.text("") + users, users} {
		rewrite(t, path, config)
		for _, transport := range []*http.Transport{old, {DisableKeepAlives: true}} {
			// 403 and not 401: nobody is to send a password in plain text.
			expect(t, transport, url, map[string]int{
				"/pods": http.StatusForbidden, "/pods/x": http.StatusForbidden, "/events": http.StatusForbidden,
				"/containers/x": http.StatusForbidden, "/containers?pid=1": http.StatusForbidden,
				"/metrics": http.StatusForbidden, "/livez": http.StatusOK,
			})
		}
	}
}

// TestOldConnectionFollowsConfiguration edits the configuration while a connection is
// kept.
func TestOldConnectionFollowsConfiguration(t *testing.T) {
	cert, other := newCertificate(t), newCertificate(t)
	path := write(t, cert.text(""))
	url := "https://" + serveEverywhere(t, path)
	anonymous := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool}}
	certified := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool, Certificates: []tls.Certificate{cert.pair}}}
	defer anonymous.CloseIdleConnections()
	defer certified.CloseIdleConnections()
	expect(t, anonymous, url, map[string]int{"/metrics": http.StatusOK, "/pods": http.StatusForbidden})
	rewrite(t, path, cert.text(cert.requires()))
	expect(t, anonymous, url, map[string]int{"/metrics": http.StatusForbidden, "/pods": http.StatusForbidden})
	expect(t, certified, url, map[string]int{"/metrics": http.StatusOK, "/pods": http.StatusOK})
	rewrite(t, path, cert.text(other.requires()))
	expect(t, certified, url, map[string]int{"/metrics": http.StatusForbidden, "/pods": http.StatusForbidden})
	rewrite(t, path, "{")
	expect(t, certified, url, map[string]int{"/metrics": http.StatusInternalServerError, "/pods": http.StatusInternalServerError, "/livez": http.StatusOK})
}

// TestClientCertificatesNeedCA: without a CA, those of every CA of the system would be
// accepted.
func TestClientCertificatesNeedCA(t *testing.T) {
	cert := newCertificate(t)
	empty := write(t, "no certificate")
	for _, kind := range []string{"RequireAndVerifyClientCert", "VerifyClientCertIfGiven"} {
		for _, ca := range []string{"", ", client_ca_file: " + empty} {
			path := cert.config(t, ", client_auth_type: "+kind+ca)
			if err := httpserver.CheckWebConfig(path); err == nil || !strings.Contains(err.Error(), "needs client_ca_file") {
				t.Errorf("CheckWebConfig(%s%s) = %v, want an error", kind, ca, err)
			}
		}
	}
	path := cert.config(t, cert.requires())
	url := "https://" + serveEverywhere(t, path)
	rewrite(t, path, cert.text(", client_auth_type: RequireAndVerifyClientCert"))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool, Certificates: []tls.Certificate{cert.pair}}}
	if answer, err := transport.RoundTrip(newRequest(t, url+"/pods")); err == nil {
		t.Errorf("without a CA after an edit: %d, want no connection", answer.StatusCode)
		_ = answer.Body.Close()
	}
}

// TestHealthNeedsNoPassword: a kubelet that probes has none. It is not told what the runtime
// says, and gets nothing else.
func TestHealthNeedsNoPassword(t *testing.T) {
	runtime := plegtest.New()
	runtime.SetListFault(plegtest.Fail(errors.New("shop/a")))
	address := serveAt(t, runtime, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, write(t, users))
	ready := func(login string) string { return body(t, fetch(t, "http://"+login+address+"/readyz")) }
	for text := ""; !strings.Contains(text, "shop/a"); text = ready("jo:secret@") {
		continue // the first list may not have failed yet
	}
	for _, login := range []string{"", "jo:wrong@"} {
		if answer := fetch(t, "http://"+login+address+"/livez"); answer.StatusCode != http.StatusOK {
			t.Errorf("%q: /livez = %d, want 200", login, answer.StatusCode)
		}
		if text := ready(login); !strings.Contains(text, "no list has succeeded yet") || strings.Contains(text, "shop/a") {
			t.Errorf("%q: /readyz = %q, want it without names", login, text)
		}
		answer := fetch(t, "http://"+login+address+"/events")
		if answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("WWW-Authenticate") != "Basic" {
			t.Errorf("%q: /events = %d %v, want that it asks for a password", login, answer.StatusCode, answer.Header)
		}
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
		{"/metrics", "evil.example", http.StatusForbidden},
		{"/livez", "evil.example", http.StatusOK},
	} {
		if answer := fetch(t, "http://"+address+test.path, "Host", test.host); answer.StatusCode != test.want {
			t.Errorf("%s of %q = %d, want %d", test.path, test.host, answer.StatusCode, test.want)
		}
	}
}
