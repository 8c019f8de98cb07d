package httpserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/time/rate"
)

// Access decides for each request whether it is answered, and whether its client may see
// pods. It reads the web configuration each time, so that a decision never depends on
// what the file said when the program or the connection began.
type Access struct {
	address   net.Addr
	path      string
	passwords *passwords
	limiter   *rate.Limiter // nil without rate_limit
}

// NewAccess returns the access to a server on an address. webConfig is empty or the path
// of a file with TLS and authentication, in the format of the Prometheus exporter
// toolkit. NewAccess returns the error of [CheckWebConfig]. The file decides once, here,
// about rate_limit, and at the start of [Serve] whether connections are encrypted.
func NewAccess(address net.Addr, webConfig string) (*Access, error) {
	if err := CheckWebConfig(webConfig); err != nil {
		return nil, err
	}
	config, err := readWebConfig(webConfig)
	if err != nil {
		return nil, err
	}
	a := &Access{address: address, path: webConfig, passwords: newPasswords()}
	if limit := config.RateLimiterConfig; limit.Interval != 0 {
		a.limiter = rate.NewLimiter(rate.Every(limit.Interval), limit.Burst)
	}
	return a, nil
}

// refusal is why a request is not answered, with the status for it.
type refusal struct {
	error

	code int
}

func refuse(code int, format string, args ...any) error {
	return refusal{fmt.Errorf(format, args...), code}
}

// isHealth reports whether a path is open to everybody: a kubelet that probes it has no
// password, and would restart the program.
func isHealth(path string) bool { return path == "/livez" || path == "/readyz" }

// guard answers requests that the web configuration admits.
func (a *Access) guard(h http.Handler, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		config, err := readWebConfig(a.path)
		if err != nil {
			logger.ErrorContext(r.Context(), "cannot read web configuration", "err", err)
		} else {
			for key, value := range config.HTTPConfig.Header {
				w.Header().Set(key, value)
			}
		}
		switch {
		case isHealth(r.URL.Path):
		case err != nil:
			http.Error(w, "the web configuration cannot be read", http.StatusInternalServerError)
			return
		case a.limiter != nil && !a.limiter.Allow():
			writeRefusal(w, refuse(http.StatusTooManyRequests, "too many requests: see rate_limit in the --web-config"))
			return
		default:
			if err := a.admit(r, config); err != nil {
				writeRefusal(w, err)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

func writeRefusal(w http.ResponseWriter, err error) {
	code := http.StatusForbidden
	if r, ok := errors.AsType[refusal](err); ok {
		code = r.code
	}
	switch code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Basic")
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, err.Error(), code)
}

// admit returns an error if the configuration does not let the client of r ask anything.
func (a *Access) admit(r *http.Request, c *web.Config) error {
	if r.TLS == nil && c.TLSConfig.IsEnabled() {
		return refuse(http.StatusForbidden, "the --web-config has a tls_server_config, but this server began without: restart it")
	}
	if c.TLSConfig.ClientAuth == requireCertificate {
		if err := checkCertificate(r.TLS, c); err != nil {
			return refuse(http.StatusForbidden, "client certificate: %w", err)
		}
	}
	if len(c.Users) == 0 {
		return nil
	}
	if r.TLS == nil && !a.Local() {
		return refuse(http.StatusForbidden, "a password is not accepted without encryption: the --web-config has basic_auth_users but no tls_server_config")
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		return refuse(http.StatusUnauthorized, "a password is required")
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	err := a.passwords.verify(c, host, user, password)
	switch {
	case errors.Is(err, errManyPasswords):
		return refuse(http.StatusTooManyRequests, "%w", err)
	case err != nil:
		return refuse(http.StatusUnauthorized, "%w", err)
	}
	return nil
}

// HidePods returns an error if the answer to r must not name pods: the client is not
// authenticated and not of this machine, or the connection is not encrypted. It decides
// by the connection of r and the web configuration as they are now.
func (a *Access) HidePods(r *http.Request) error {
	config, err := readWebConfig(a.path)
	if err != nil {
		return errors.New("pods are not served: the web configuration cannot be read")
	}
	if err := a.admit(r, config); err != nil {
		return err
	}
	const others = "other machines can reach this address, so pods are not served without "
	switch {
	case a.Local():
		return nil
	case a.path == "":
		return errors.New(others + "authentication: use --web-config, or listen on 127.0.0.1")
	case len(config.Users) > 0 && r.TLS == nil:
		return errors.New(others + "encryption: the --web-config has basic_auth_users but no tls_server_config")
	case len(config.Users) > 0 || checkCertificate(r.TLS, config) == nil:
		return nil
	}
	return errors.New(others + "authentication: the --web-config must have basic_auth_users, or client_auth_type: " + requireCertificate)
}

// Local reports whether only this machine can reach the address.
func (a *Access) Local() bool {
	tcp, ok := a.address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// tlsConfig returns the configuration of a new connection, or nil if the file now has no
// TLS: the connection must fail then.
func (a *Access) tlsConfig(*tls.ClientHelloInfo) (*tls.Config, error) {
	config, err := readWebConfig(a.path)
	if err != nil {
		return nil, err
	}
	return newTLSConfig(config)
}

// isRebound reports whether a request reached the loopback device under a foreign
// host name. That happens in an attack by DNS rebinding: a browser on this machine
// loads a web page whose name then resolves to this machine. With TLS the browser
// detects this by the certificate.
func isRebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() || r.TLS != nil {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil
}

// ParseAddress completes an address to listen on: "9090" and ":9090" become
// 127.0.0.1:9090, as answers can name the pods of the node; any other address must be host:port. Port 0 means any free port.
func ParseAddress(address string) (string, error) {
	if !strings.Contains(address, ":") {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q is not an address: want PORT, :PORT or HOST:PORT", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q is not a port: want 0 to 65535", port)
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port), nil
}

// Listen listens on an address of [ParseAddress].
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}
