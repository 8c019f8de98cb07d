package httpserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

// Types of TLS client authentication that verify certificates: of every client, or of
// those that have one.
const (
	requireCertificate = "RequireAndVerifyClientCert"
	verifyCertificate  = "VerifyClientCertIfGiven"
)

// CheckWebConfig returns what is wrong with a web configuration for [NewAccess]. An empty
// path means no configuration and is correct.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil || path == "" {
		return err
	}
	config, err := readWebConfig(path)
	if err != nil || !config.TLSConfig.IsEnabled() {
		return err
	}
	_, err = newTLSConfig(config)
	return err
}

// readWebConfig reads a web configuration as it is now. An empty path means an empty
// configuration.
func readWebConfig(path string) (*web.Config, error) {
	config := &web.Config{
		TLSConfig:  web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13},
		HTTPConfig: web.HTTPConfig{HTTP2: true},
	}
	if path == "" {
		return config, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read web configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, config); err != nil {
		return nil, fmt.Errorf("read web configuration %s: %w", path, err)
	}
	config.TLSConfig.SetDirectory(filepath.Dir(path))
	return config, nil
}

// newTLSConfig returns the configuration of one TLS connection. It rejects versions older
// than 1.2, and client certificates without a CA: crypto/tls would accept those of every
// CA that the system trusts.
func newTLSConfig(c *web.Config) (*tls.Config, error) {
	if c.TLSConfig.MinVersion < tls.VersionTLS12 {
		return nil, fmt.Errorf("min_version is %s, want TLS12 or TLS13", tls.VersionName(uint16(c.TLSConfig.MinVersion)))
	}
	config, err := web.ConfigToTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, err
	}
	if verifiesClients(c) && (config.ClientCAs == nil || config.ClientCAs.Equal(x509.NewCertPool())) {
		return nil, errors.New("client_auth_type: " + c.TLSConfig.ClientAuth + " needs client_ca_file or client_ca, with at least one certificate")
	}
	config.NextProtos = []string{"http/1.1"}
	if c.HTTPConfig.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	// A resumed session would skip the checks of a configuration that changed meanwhile.
	config.SessionTicketsDisabled = true
	return config, nil
}

func verifiesClients(c *web.Config) bool {
	return c.TLSConfig.ClientAuth == requireCertificate || c.TLSConfig.ClientAuth == verifyCertificate
}

// checkCertificate returns an error unless the client of a connection has a certificate
// that the configuration accepts. The handshake may have been made under another one.
func checkCertificate(state *tls.ConnectionState, c *web.Config) error {
	if !verifiesClients(c) {
		return errors.New("the --web-config verifies no client certificates")
	}
	if state == nil || len(state.VerifiedChains) == 0 {
		return errors.New("the connection has no verified client certificate")
	}
	config, err := newTLSConfig(c)
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	var raw [][]byte
	for _, cert := range state.PeerCertificates {
		between.AddCert(cert)
		raw = append(raw, cert.Raw)
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: config.ClientCAs, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil && config.VerifyPeerCertificate != nil {
		err = config.VerifyPeerCertificate(raw, nil)
	}
	return err
}
