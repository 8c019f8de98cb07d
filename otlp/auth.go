package otlp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tlsConfig returns how to encrypt; nil for not at all.
func (o DialOptions) tlsConfig(secure bool) (*tls.Config, error) {
	if (o.ClientCertificate == "") != (o.ClientKey == "") {
		return nil, errors.New("DialOptions.ClientCertificate and ClientKey need each other")
	}
	if !secure {
		if o.Certificate != "" || o.ClientCertificate != "" {
			return nil, errors.New("DialOptions.Certificate and ClientCertificate need an endpoint with TLS")
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Certificate != "" {
		pem, err := os.ReadFile(o.Certificate)
		if err != nil {
			return nil, fmt.Errorf("DialOptions.Certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("DialOptions.Certificate: %s has no certificate", o.Certificate)
		}
	}
	if o.ClientCertificate != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.ClientCertificate, o.ClientKey)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("DialOptions.ClientCertificate: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}

// headers implements [credentials.PerRPCCredentials].
type headers struct{ file string }

// GetRequestMetadata implements [credentials.PerRPCCredentials]. Its error is one to retry:
// a file that is being replaced may be missing for a moment.
func (h headers) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	values, err := readHeaders(h.file)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "read headers: %v", err)
	}
	return values, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]. A receiver on this
// machine needs none.
func (headers) RequireTransportSecurity() bool { return false }

// readHeaders returns the headers in a file; none without one.
func readHeaders(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || !isHeaderName(name) {
			return nil, fmt.Errorf("%s: line %d is not NAME=VALUE", file, n) // it may be a secret
		}
		values[name] = strings.TrimSpace(value)
	}
	return values, lines.Err()
}

// isHeaderName reports whether gRPC can send a header of this name. HTTP can then, too.
func isHeaderName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin") &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		})
}
