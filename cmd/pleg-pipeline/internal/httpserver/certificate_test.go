package httpserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate is a self-signed certificate for 127.0.0.1, for servers and clients, and its
// key. They are in the files crt and key of dir.
type certificate struct {
	dir  string
	pool *x509.CertPool
	pair tls.Certificate
}

func newCertificate(t *testing.T) certificate {
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
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return certificate{dir, pool, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

// text is a web configuration with the certificate and other TLS settings.
func (c certificate) text(other string) string {
	return fmt.Sprintf("tls_server_config: {cert_file: %s/crt, key_file: %[1]s/key%s}\n", c.dir, other)
}

// requires are the settings that require certificates signed by this one.
func (c certificate) requires() string {
	return fmt.Sprintf(", client_auth_type: RequireAndVerifyClientCert, client_ca_file: %s/crt", c.dir)
}

func (c certificate) config(t *testing.T, other string) string {
	t.Helper()
	return write(t, c.text(other))
}
