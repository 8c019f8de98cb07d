package httpserver

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

// clientCertificates is the only type of TLS client authentication that verifies the
// client.
const clientCertificates = "RequireAndVerifyClientCert"

// webConfig is the part of a web configuration that decides about access.
type webConfig struct {
	Users map[string]string `yaml:"basic_auth_users"`
	TLS   struct {
		Cert       string `yaml:"cert"`
		CertFile   string `yaml:"cert_file"`
		ClientAuth string `yaml:"client_auth_type"`
		MinVersion string `yaml:"min_version"`
	} `yaml:"tls_server_config"`
}

func readWebConfig(path string) (webConfig, error) {
	var config webConfig
	text, err := os.ReadFile(path)
	if err != nil {
		return config, fmt.Errorf("read web configuration: %w", err)
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return config, fmt.Errorf("read web configuration %s: %w", path, err)
	}
	return config, nil
}

// CheckWebConfig returns what is wrong with a web configuration for [Serve]. It
// rejects TLS older than 1.2. An empty path means no configuration and is correct.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil || path == "" {
		return err
	}
	config, err := readWebConfig(path)
	if err != nil {
		return err
	}
	if v := config.TLS.MinVersion; v == "TLS10" || v == "TLS11" {
		return fmt.Errorf("web configuration %s: min_version is %s, want TLS12 or TLS13", path, v)
	}
	return nil
}

// HidePods returns an error if answers at this address must not name pods: other
// machines can reach it, and the web configuration does not authenticate them or does
// not encrypt.
func HidePods(address net.Addr, path string) error {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	if path == "" {
		return errors.New("other machines can reach this address, so pods are not served without authentication: use --web-config, or listen on 127.0.0.1")
	}
	config, err := readWebConfig(path)
	switch {
	case err != nil:
		return fmt.Errorf("pods are not served: %w", err)
	case config.TLS.ClientAuth == clientCertificates:
		return nil
	case len(config.Users) == 0:
		return errors.New("other machines can reach this address, so pods are not served without authentication: the --web-config has neither basic_auth_users nor client_auth_type: " + clientCertificates)
	case config.TLS.Cert == "" && config.TLS.CertFile == "":
		return errors.New("other machines can reach this address, so pods are not served without encryption: the --web-config has basic_auth_users but no tls_server_config")
	}
	return nil
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
