package httpserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// users contains the user jo with the password "secret".
const users = "basic_auth_users:\n  jo: $2a$04$oulzlyBHABGVms2WBELgwuPaHoiFSNNrzT7pYv2440S2lbW84d4x6\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.yaml")
	kit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// everywhere is an address that other machines reach.
var everywhere = &net.TCPAddr{IP: net.IPv4zero, Port: 9090}

// TestHidePods asks for pods after the web configuration has admitted the request.
func TestHidePods(t *testing.T) {
	cert := newCertificate(t)
	plain, encrypted, certified := (*tls.ConnectionState)(nil), &tls.ConnectionState{}, cert.state()
	certificates := cert.text(cert.requires())
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	const (
		others     = "other machines can reach this address, so pods are not served without "
		noConfig   = others + "authentication: use --web-config, or listen on 127.0.0.1"
		plaintext  = others + "encryption: the --web-config needs a tls_server_config, from the start of this server"
		noUsers    = others + "authentication: the --web-config must have basic_auth_users, or client_auth_type: RequireAndVerifyClientCert"
		unreadable = "pods are not served: the web configuration cannot be read"
	)
	for _, test := range []struct {
		address, config string
		state           *tls.ConnectionState
		hidden          string
	}{
		{"127.0.0.1:9090", "", plain, ""},
		{"[::1]:9090", "", plain, ""},
		{"127.0.0.1:9090", users, plain, ""},
		{"0.0.0.0:9090", "", plain, noConfig},
		{"[::]:9090", "", plain, noConfig},
		{"192.0.2.1:9090", "", plain, noConfig},
		{"0.0.0.0:9090", users, plain, plaintext},
		{"0.0.0.0:9090", users + cert.text(""), plain, plaintext},
		{"0.0.0.0:9090", users + cert.text(""), encrypted, ""},
		{"0.0.0.0:9090", cert.text(""), encrypted, noUsers},
		{"0.0.0.0:9090", certificates, plain, plaintext},
		{"0.0.0.0:9090", certificates, encrypted, noUsers},
		{"0.0.0.0:9090", certificates, certified, ""},
		{"0.0.0.0:9090", cert.text(", client_auth_type: VerifyClientCertIfGiven"), certified, unreadable},
		{"0.0.0.0:9090", "{", encrypted, unreadable},
		// "kubectl port-forward" connects over the loopback device.
		{"0.0.0.0:9090 over 127.0.0.1:9090", "", plain, ""},
		{"0.0.0.0:9090 over 192.0.2.1:9090", "", plain, noConfig},
		{"0.0.0.0:9090 over 127.0.0.1:9090", cert.text(""), encrypted, noUsers},
	} {
		o := options(pipe)
		of, over, _ := strings.Cut(test.address, " over ")
		o.Address = address(t, of)
		if test.config != "" {
			o.WebConfig = write(t, test.config)
		}
		ctx := t.Context()
		if over != "" {
			ctx = context.WithValue(ctx, http.LocalAddrContextKey, address(t, over))
		}
		r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/pods", nil)
		r.TLS = test.state
		answer := httptest.NewRecorder()
		httpserver.Handler(o).ServeHTTP(answer, r)
		if (answer.Code == http.StatusForbidden) != (test.hidden != "") || test.hidden != "" && answer.Body.String() != test.hidden+"\n" {
			t.Errorf("%s, %q: /pods = %d %q, want %q", test.address, test.config, answer.Code, answer.Body, test.hidden)
		}
	}
}

func address(t *testing.T, text string) net.Addr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", text)
	kit.Must(t, err)
	return a
}

// TestPasswords: without a password nothing is served, with one the pods are.
func TestPasswords(t *testing.T) {
	cert := newCertificate(t)
	path := write(t, users+cert.text("")+"http_server_config: {headers: {X-Frame-Options: deny}}\n")
	kit.Must(t, httpserver.CheckWebConfig(path))
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{RelistPeriod: fast})
	kit.Must(t, pipe.WaitSynced(t.Context()))
	o := options(pipe)
	o.Address, o.WebConfig = everywhere, path
	address := serve(t, httpserver.Handler(o), path)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool}}
	defer transport.CloseIdleConnections()
	for login, code := range map[string]int{"": 401, "wrong": 401, "secret": 200} {
		for _, path := range []string{"/", "/metrics", "/livez", "/pods", "/events"} {
			r := newRequest(t, "https://"+address+path)
			if login != "" {
				r.SetBasicAuth("jo", login)
			}
			answer, err := transport.RoundTrip(r)
			kit.Must(t, err)
			_ = answer.Body.Close()
			if answer.StatusCode != code || answer.Header.Get("X-Frame-Options") != "deny" {
				t.Errorf("%s with the password %q = %d %v, want %d", path, login, answer.StatusCode, answer.Header, code)
			}
		}
	}
}

// TestClientCertificatesNeedCA: without a CA, certificates of every CA of the system would be
// accepted.
func TestClientCertificatesNeedCA(t *testing.T) {
	cert := newCertificate(t)
	for _, kind := range []string{"RequireAndVerifyClientCert", "VerifyClientCertIfGiven"} {
		if err := httpserver.CheckWebConfig(cert.config(t, ", client_auth_type: "+kind)); err == nil || err.Error() != "client_auth_type: "+kind+" needs client_ca_file or client_ca" {
			t.Errorf("CheckWebConfig(%s) = %v, want an error", kind, err)
		}
		ca, err := os.ReadFile(cert.cert)
		kit.Must(t, err)
		if err := httpserver.CheckWebConfig(cert.config(t, fmt.Sprintf(", client_auth_type: %s, client_ca: %q", kind, ca))); err != nil {
			t.Errorf("CheckWebConfig(%s) with a CA in the file = %v", kind, err)
		}
	}
	if err := httpserver.CheckWebConfig(write(t, "basic_auth_user: {jo: hash}")); err == nil || !strings.Contains(err.Error(), "field basic_auth_user not found") {
		t.Errorf("CheckWebConfig of a misspelt setting = %v, want its name", err)
	}
}

// TestRefusedRequests: requests for pods are refused under a foreign host name, as after DNS
// rebinding, and from a page of another site, which could also take all slots.
func TestRefusedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
		time.Sleep(1500 * time.Millisecond)
		h := httpserver.Handler(options(pipe))
		overLoopback := context.WithValue(t.Context(), http.LocalAddrContextKey, address(t, "127.0.0.1:9090"))
		for _, test := range []struct {
			path, host, site, mode string
			code                   int
		}{
			{"/pods", "localhost:9090", "", "", 200},
			{"/pods", "localhost", "", "", 200},
			{"/pods", "[::1]:9090", "", "", 200},
			{"/pods", "[::1]", "", "", 200}, // on port 80
			{"/pods", "evil.example", "", "", 403},
			{"/pods", "evil.example:9090", "", "", 403},
			{"/pods/x", "evil.example", "", "", 403},
			{"/events", "evil.example", "", "", 403},
			{"/metrics", "evil.example", "", "", 403},
			{"/metrics", "localhost", "", "", 200},
			{"/livez", "evil.example", "", "", 200},
			{"/pods", "localhost", "same-origin", "cors", 200},
			{"/pods", "localhost", "none", "navigate", 200},
			{"/pods", "localhost", "cross-site", "navigate", 200},
			{"/pods", "localhost", "cross-site", "no-cors", 403},
			{"/stages", "localhost", "cross-site", "cors", 403},
			{"/events", "localhost", "cross-site", "no-cors", 403},
			{"/", "localhost", "cross-site", "navigate", 200},
		} {
			r := httptest.NewRequestWithContext(overLoopback, "GET", "http://"+test.host+test.path, nil)
			r.Header.Set("Sec-Fetch-Site", test.site)
			r.Header.Set("Sec-Fetch-Mode", test.mode)
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			what := "pods"
			if test.path == "/metrics" {
				what = "metrics"
			}
			want := fmt.Sprintf("%s are not served under the host name %q: use localhost or an IP address\n", what, test.host)
			if test.site != "" {
				want = "pods are not served to pages of other sites\n"
			}
			if test.code == http.StatusForbidden && answer.Body.String() != want {
				t.Errorf("%+v says %q, want %q", test, answer.Body, want)
			}
			if answer.Code != test.code || answer.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%+v = %d %s %v", test, answer.Code, answer.Body, answer.Header())
			}
			if policy := answer.Header().Get("Cross-Origin-Resource-Policy"); policy != "same-origin" && test.site != "" {
				t.Errorf("%+v has the policy %q", test, policy)
			}
		}
		began := time.Now()
		for range 2 * httpserver.MaxRate {
			r := httptest.NewRequestWithContext(overLoopback, "GET", "http://evil.example/pods", nil)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("refused requests took %v, want that they take no turn of others", took)
		}
	})
}

// certificate is a self-signed certificate for 127.0.0.1, for servers and clients.
type certificate struct {
	cert, key string // files
	pool      *x509.CertPool
	pair      tls.Certificate
}

func newCertificate(t *testing.T) certificate {
	t.Helper()
	cert, key := kit.SelfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	return certificate{cert, key, pool, pair}
}

// text is a web configuration with the certificate and other TLS settings.
func (c certificate) text(other string) string {
	return fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s%s}\n", c.cert, c.key, other)
}

// requires are the settings that require certificates signed by this authority.
func (c certificate) requires() string {
	return ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: " + c.cert
}

func (c certificate) config(t *testing.T, other string) string {
	t.Helper()
	return write(t, c.text(other))
}

// state is a connection whose client has shown the certificate, which was verified.
func (c certificate) state() *tls.ConnectionState {
	chain := []*x509.Certificate{c.pair.Leaf}
	return &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
}
