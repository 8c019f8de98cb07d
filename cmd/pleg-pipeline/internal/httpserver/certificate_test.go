package httpserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

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
