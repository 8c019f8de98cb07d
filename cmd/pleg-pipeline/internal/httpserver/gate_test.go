package httpserver_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// TestGateRefusesClearly opens more connections than the limit.
func TestGateRefusesClearly(t *testing.T) {
	address := serve(t, http.NotFoundHandler(), "")
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range httpserver.MaxConnections {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if code, text := knock(t, address); code != http.StatusServiceUnavailable || !strings.Contains(text, "too many connections") {
		t.Errorf("one connection too many = %d %q, want 503 and why", code, text)
	}
	_ = conns[0].Close()
	for code := http.StatusServiceUnavailable; code != http.StatusNotFound; { // its connection ends soon
		code, _ = knock(t, address)
	}
}

// knock repeats a request until it gets an answer. On a busy machine the server may close
// a refused connection before the request is sent.
func knock(t *testing.T, address string) (code int, text string) {
	t.Helper()
	for {
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(newRequest(t, "http://"+address+"/livez"))
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil {
			return answer.StatusCode, string(read)
		}
	}
}

// TestLimit holds as many requests as the limit allows.
func TestLimit(t *testing.T) {
	release, inside := make(chan struct{}), make(chan struct{})
	var entered atomic.Int32
	h := httpserver.Limit(2, "requests", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if entered.Add(1) > 2 {
			return // the checks below find it
		}
		inside <- struct{}{}
		<-release
	}))
	ended := make(chan int)
	for range 2 {
		go func() {
			code, _ := ask(t, h, "GET", "/")
			ended <- code
		}()
		<-inside
	}
	if code, text := ask(t, h, "GET", "/"); code != http.StatusServiceUnavailable || !strings.Contains(text, "2 at a time") {
		t.Errorf("the third = %d %q, want 503 and the limit", code, text)
	}
	close(release)
	for range 2 {
		if code := <-ended; code != http.StatusOK {
			t.Errorf("one of two = %d, want 200", code)
		}
	}
	if code, _ := ask(t, h, "GET", "/"); code != http.StatusOK {
		t.Errorf("one after them = %d, want 200", code)
	}
}

// TestNothingWrites tries every method that could change something.
func TestNothingWrites(t *testing.T) {
	pipe, _ := newPipe(t, plegtest.New(), pipeline.Options{})
	h := httpserver.Handler(options(pipe))
	for _, path := range []string{"/metrics", "/livez", "/readyz", "/pods", "/pods/x", "/events"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE"} {
			if code, _ := ask(t, h, method, path); code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s = %d, want 405", method, path, code)
			}
		}
	}
}

// TestOldTLS requires that old versions are refused in the configuration and in the
// handshake.
func TestOldTLS(t *testing.T) {
	pool, config := certificate(t)
	for version, bad := range map[string]bool{", min_version: TLS10": true, ", min_version: TLS11": true, ", min_version: TLS12": false, "": false} {
		if err := httpserver.CheckWebConfig(config(version)); (err != nil) != bad {
			t.Errorf("%q: CheckWebConfig() = %v, want an error: %v", version, err, bad)
		}
	}
	address := servePipe(t, plegtest.New(), config(""))
	for version, bad := range map[uint16]bool{tls.VersionTLS10: true, tls.VersionTLS11: true, tls.VersionTLS12: false, tls.VersionTLS13: false} {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: version, MaxVersion: version}}).DialContext(t.Context(), "tcp", address)
		if (err != nil) != bad {
			t.Errorf("%s: %v, want an error: %v", tls.VersionName(version), err, bad)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

// certificate writes a self-signed certificate for 127.0.0.1, and its key. config writes
// a web configuration with them and other settings.
func certificate(t *testing.T) (pool *x509.CertPool, config func(other string) string) {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"crt": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return pool, func(other string) string {
		return write(t, fmt.Sprintf("tls_server_config: {cert_file: %s/crt, key_file: %[1]s/key%s}\n", dir, other))
	}
}

// TestServeTLS streams events over HTTP/1 and HTTP/2.
func TestServeTLS(t *testing.T) {
	pool, config := certificate(t)
	path := config("")
	if err := httpserver.CheckWebConfig(path); err != nil {
		t.Fatal(err)
	}
	runtime := plegtest.New()
	runtime.Set("shop/a", "c=running /s=running")
	address := servePipe(t, runtime, path)
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2}
		answer, err := transport.RoundTrip(newRequest(t, "https://"+address+"/events?replay&bookmarks"))
		if err != nil {
			t.Fatal(err)
		}
		if wanted := map[bool]int{false: 1, true: 2}[http2]; answer.ProtoMajor != wanted {
			t.Errorf("HTTP/%d, want HTTP/%d", answer.ProtoMajor, wanted)
		}
		lines := bufio.NewReader(answer.Body)
		for line := ""; !strings.HasPrefix(line, "event: Bookmark"); {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		_ = answer.Body.Close()
		transport.CloseIdleConnections()
	}
}
