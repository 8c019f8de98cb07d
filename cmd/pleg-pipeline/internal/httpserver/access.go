package httpserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

// clientCertificates is the only kind of TLS client authentication that proves
// who the client is.
const clientCertificates = "RequireAndVerifyClientCert"

// webConfig is what has to be known of a web configuration.
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

// CheckWebConfig returns what is wrong with a file for [Serve]; an empty path is
// no file and nothing is wrong. TLS older than 1.2 is.
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

// HidePods returns why nothing may be served at this address that names a pod:
// others can reach it, and the web configuration does not ask who they are. It
// returns nil if it may be served.
func HidePods(address net.Addr, path string) error {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	if path == "" {
		return errors.New("pods are not shown on an address that other machines can reach without authentication: give a --web-config, or listen on 127.0.0.1")
	}
	config, err := readWebConfig(path)
	switch {
	case err != nil:
		return fmt.Errorf("pods are not shown: %w", err)
	case config.TLS.ClientAuth == clientCertificates:
		return nil
	case len(config.Users) == 0:
		return errors.New("pods are not shown on an address that other machines can reach without authentication: the --web-config has neither basic_auth_users nor client_auth_type: " + clientCertificates)
	case config.TLS.Cert == "" && config.TLS.CertFile == "":
		return errors.New("pods are not shown on an address that other machines can reach without encryption: the --web-config has basic_auth_users but no tls_server_config")
	}
	return nil
}

// rebound reports whether a request came to the loopback device under a name
// that is none of its own: so does that of a web page whose name was made to
// point here, in a browser on this machine. With TLS the browser finds that out by
// the certificate.
func rebound(r *http.Request) bool {
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
