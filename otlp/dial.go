package otlp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// defaultPort is that of OTLP/gRPC.
const defaultPort = "4317"

// DialOptions configure [Dial]. The zero value sends no headers and trusts the
// certificates of the system.
type DialOptions struct {
	// Insecure connects without TLS, if the endpoint is HOST:PORT. A URL says by its
	// scheme what it wants.
	Insecure bool
	// HeadersFile has a header in each line, NAME=VALUE, which each request carries. It
	// is read for each request, so that a token may be replaced.
	HeadersFile string
	// Certificate is a file with the certificates that the receiver's must be signed
	// by. If empty, those of the system.
	Certificate string
	// ClientCertificate and ClientKey are files with the certificate of this client and
	// its key. They are read for each connection.
	ClientCertificate, ClientKey string
	// Compression is that of the requests: "gzip", which the receiver must accept, or
	// "none". If empty, none.
	Compression string
	// UserAgent names the program. If empty, "pleg-pipeline".
	UserAgent string
}

// Dial returns a connection for [NewExporter] to HOST:PORT, http://HOST:PORT (without
// TLS) or https://HOST:PORT. It does not wait for the receiver: the connection is made,
// and made again after a loss, until it is closed. The error names a bad option or file.
func Dial(endpoint string, o DialOptions) (*grpc.ClientConn, error) {
	target, secure, err := parseEndpoint(endpoint, o.Insecure)
	if err != nil {
		return nil, fmt.Errorf("dial OTLP receiver: %w", err)
	}
	transport, err := o.transport(secure)
	if err != nil {
		return nil, fmt.Errorf("dial OTLP receiver: %w", err)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(cmp.Or(o.UserAgent, "pleg-pipeline")),
		grpc.WithDisableServiceConfig(), // whoever answers for the name does not configure this
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: DefaultMinBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: DefaultMaxBackoff},
			MinConnectTimeout: DefaultExportTimeout,
		}),
		// No request is that long. It makes grpc set TCP_USER_TIMEOUT, without which a
		// connection through a dead network lasts a quarter of an hour.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: 20 * time.Second}),
	}
	switch o.Compression {
	case "", "none":
	case gzip.Name:
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	default:
		return nil, fmt.Errorf("dial OTLP receiver: DialOptions.Compression is %q: want gzip or none", o.Compression)
	}
	if o.HeadersFile != "" {
		if _, err := readHeaders(o.HeadersFile); err != nil {
			return nil, fmt.Errorf("dial OTLP receiver: DialOptions.HeadersFile: %w", err)
		}
		options = append(options, grpc.WithPerRPCCredentials(headers{o.HeadersFile}))
	}
	conn, err := grpc.NewClient("dns:///"+target, options...)
	if err != nil {
		return nil, fmt.Errorf("dial OTLP receiver: %w", err)
	}
	return conn, nil
}

// parseEndpoint returns HOST:PORT, and whether it wants TLS.
func parseEndpoint(endpoint string, withoutTLS bool) (target string, secure bool, err error) {
	target, secure = endpoint, !withoutTLS
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		if scheme != "http" && scheme != "https" {
			return "", false, fmt.Errorf("endpoint %q has the scheme %q: want http, https or none", endpoint, scheme)
		}
		u, err := url.Parse(endpoint)
		if err != nil {
			return "", false, err
		}
		if strings.TrimSuffix(rest, "/") != u.Host {
			return "", false, fmt.Errorf("endpoint %q is more than HOST:PORT: OTLP over gRPC has no path, user or query", u.Redacted())
		}
		target, secure = u.Host, scheme == "https"
	}
	return completeTarget(endpoint, target, secure)
}

func completeTarget(endpoint, target string, secure bool) (string, bool, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		host, port, err = net.SplitHostPort(target + ":" + defaultPort)
	}
	if n, errPort := strconv.ParseUint(port, 10, 16); err != nil || errPort != nil || n == 0 || host == "" || strings.ContainsAny(host, "/ @") {
		return "", false, fmt.Errorf("endpoint %q is not HOST:PORT, such as localhost:4317, nor such a URL with http or https", endpoint)
	}
	return net.JoinHostPort(host, port), secure, nil
}

func (o *DialOptions) transport(secure bool) (credentials.TransportCredentials, error) {
	if (o.ClientCertificate == "") != (o.ClientKey == "") {
		return nil, errors.New("DialOptions.ClientCertificate and ClientKey need each other")
	}
	if !secure {
		if o.Certificate != "" || o.ClientCertificate != "" {
			return nil, errors.New("DialOptions.Certificate and ClientCertificate need an endpoint with TLS")
		}
		return insecure.NewCredentials(), nil
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
	return credentials.NewTLS(config), nil
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

func readHeaders(file string) (map[string]string, error) {
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

// isHeaderName reports whether gRPC can send a header of this name.
func isHeaderName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin") &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		})
}
