package httpserver_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// certificate writes a self-signed certificate for 127.0.0.1, and its key.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
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
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return pool
}

// TestServeTLS streams events over HTTP/1 and HTTP/2.
func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	path := filepath.Join(dir, "web.yaml")
	config := fmt.Sprintf("tls_server_config: {cert_file: %s/crt, key_file: %[1]s/key}\n", dir)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := httpserver.CheckWebConfig(path); err != nil {
		t.Fatal(err)
	}
	runtime := plegtest.New()
	runtime.Set("shop/a", "c=running /s=running")
	pipe, _ := newPipe(t, runtime, pipeline.Options{RelistPeriod: fast})
	address := serve(t, httpserver.Handler(options(pipe)), path)
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/events?replay&bookmarks", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: transport}).Do(request)
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
