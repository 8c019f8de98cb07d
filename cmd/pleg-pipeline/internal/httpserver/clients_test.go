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

// TestHidePods asks for pods after the web configuration has admitted the request.
func TestHidePods(t *testing.T) {
	cert := newCertificate(t)
	plain, encrypted, certified := (*tls.ConnectionState)(nil), &tls.ConnectionState{}, cert.state()
	certificates := cert.text(cert.requires())
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	for _, test := range []struct {
		address, config string
		state           *tls.ConnectionState
		hidden          string
	}{
		{"127.0.0.1:9090", "", plain, ""},
		{"[::1]:9090", "", plain, ""},
		{"127.0.0.1:9090", users, plain, ""},
		{"0.0.0.0:9090", "", plain, "use --web-config"},
		{"[::]:9090", "", plain, "use --web-config"},
		{"192.0.2.1:9090", "", plain, "use --web-config"},
		{"0.0.0.0:9090", users, plain, "needs a tls_server_config"},
		{"0.0.0.0:9090", users + cert.text(""), plain, "from the start of this server"},
		{"0.0.0.0:9090", users + cert.text(""), encrypted, ""},
		{"0.0.0.0:9090", cert.text(""), encrypted, "must have basic_auth_users, or"},
		{"0.0.0.0:9090", certificates, plain, "from the start of this server"},
		{"0.0.0.0:9090", certificates, encrypted, "must have basic_auth_users, or"},
		{"0.0.0.0:9090", certificates, certified, ""},
		{"0.0.0.0:9090", cert.text(", client_auth_type: VerifyClientCertIfGiven"), certified, "cannot be read"},
		{"0.0.0.0:9090", "{", encrypted, "cannot be read"},
		// "kubectl port-forward" connects over the loopback device.
		{"0.0.0.0:9090 over 127.0.0.1:9090", "", plain, ""},
		{"0.0.0.0:9090 over 192.0.2.1:9090", "", plain, "use --web-config"},
		{"0.0.0.0:9090 over 127.0.0.1:9090", cert.text(""), encrypted, "must have basic_auth_users, or"},
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
		if (answer.Code == http.StatusForbidden) != (test.hidden != "") || !strings.Contains(answer.Body.String(), test.hidden) {
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

// serveEverywhere serves a pipeline as if other machines could reach the address.
func serveEverywhere(t *testing.T, webConfig string) (address string) {
	t.Helper()
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{RelistPeriod: fast})
	kit.Must(t, pipe.WaitSynced(t.Context()))
	o := options(pipe)
	o.Address, o.WebConfig = everywhere, webConfig
	return serve(t, httpserver.Handler(o), webConfig)
}

// TestPasswords: without a password nothing is served, with it pods are.
func TestPasswords(t *testing.T) {
	cert := newCertificate(t)
	path := write(t, users+cert.text("")+"http_server_config: {headers: {X-Frame-Options: deny}}\n")
	kit.Must(t, httpserver.CheckWebConfig(path))
	address := serveEverywhere(t, path)
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

// TestRateLimitOfTheFile: the limit of the web configuration concerns all who ask.
func TestRateLimitOfTheFile(t *testing.T) {
	address := servePipe(t, plegtest.New(), write(t, "rate_limit: {interval: 1h, burst: 2}\n"))
	for n, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if answer := fetch(t, "http://"+address+"/metrics"); answer.StatusCode != want {
			t.Errorf("request %d = %d, want %d", n, answer.StatusCode, want)
		}
	}
}

// TestClientCertificatesNeedCA: without a CA, certificates of every CA of the system would be
// accepted.
func TestClientCertificatesNeedCA(t *testing.T) {
	cert := newCertificate(t)
	for _, kind := range []string{"RequireAndVerifyClientCert", "VerifyClientCertIfGiven"} {
		if err := httpserver.CheckWebConfig(cert.config(t, ", client_auth_type: "+kind)); err == nil || !strings.Contains(err.Error(), "needs client_ca_file") {
			t.Errorf("CheckWebConfig(%s) = %v, want an error", kind, err)
		}
	}
	address := serveEverywhere(t, cert.config(t, cert.requires()))
	for name, certificates := range map[string][]tls.Certificate{"none": nil, "of another CA": {newCertificate(t).pair}, "right": {cert.pair}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cert.pool, Certificates: certificates}, DisableKeepAlives: true}
		answer, err := transport.RoundTrip(newRequest(t, "https://"+address+"/pods"))
		if (err == nil) != (name == "right") {
			t.Errorf("certificate %s: %v", name, err)
		}
		if err == nil {
			if answer.StatusCode != http.StatusOK {
				t.Errorf("certificate %s: %d, want 200", name, answer.StatusCode)
			}
			_ = answer.Body.Close()
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
