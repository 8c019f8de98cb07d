package monitor

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/prometheus/exporter-toolkit/web"
	"gopkg.in/yaml.v3"
)

// clientCertificates is the only kind of TLS client authentication that proves
// who the client is.
const clientCertificates = "RequireAndVerifyClientCert"

// CheckWebConfig returns what is wrong with a file for [Serve]; an empty path is
// no file and nothing is wrong.
func CheckWebConfig(path string) error { return web.Validate(path) }

// HidePods returns why nothing may be served at this address that names a pod:
// others can reach it, and the web configuration does not ask who they are. It
// returns nil if it may be served.
func HidePods(address net.Addr, webConfig string) error {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	if webConfig == "" {
		return errors.New("pods are not shown on an address that other machines can reach without authentication: give a --web-config, or listen on 127.0.0.1")
	}
	asks, err := asksWho(webConfig)
	if err != nil {
		return fmt.Errorf("pods are not shown: %w", err)
	}
	if !asks {
		return errors.New("pods are not shown on an address that other machines can reach without authentication: the --web-config has neither basic_auth_users nor client_auth_type: " + clientCertificates)
	}
	return nil
}

// asksWho reports whether the configuration lets in known clients only.
func asksWho(path string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("read web configuration: %w", err)
	}
	var config struct {
		Users map[string]string `yaml:"basic_auth_users"`
		TLS   struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return false, fmt.Errorf("read web configuration %s: %w", path, err)
	}
	return len(config.Users) > 0 || config.TLS.ClientAuth == clientCertificates, nil
}
