package httpserver

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

// CheckWebConfig returns the error of a web configuration for [Serve]. An empty path
// means no configuration and is correct.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil {
		return err
	}
	_, err := readWebConfig(path)
	return err
}

// readWebConfig returns the present content of a web configuration, without its defaults. It
// refuses client certificates without a CA: crypto/tls would accept certificates of every CA that
// the system trusts.
func readWebConfig(path string) (*web.Config, error) {
	config := new(web.Config)
	if path == "" {
		return config, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read web configuration: %w", err)
	}
	if err := yaml.Unmarshal(text, config); err != nil {
		return nil, fmt.Errorf("read web configuration %s: %w", path, err)
	}
	tls := &config.TLSConfig
	switch tls.ClientAuth {
	case "RequireAndVerifyClientCert", "VerifyClientCertIfGiven":
		if tls.ClientCAs == "" && tls.ClientCAsText == "" {
			return nil, fmt.Errorf("client_auth_type: %s needs client_ca_file or client_ca", tls.ClientAuth)
		}
	}
	return config, nil
}

// hidden returns an error if the answer to r must not name pods. The web configuration has
// admitted the request already, so that a password is correct if one is needed.
func (o *Options) hidden(r *http.Request) error {
	if isRebound(r) {
		return fmt.Errorf("pods are not served under the host name %q: use localhost or an IP address", r.Host)
	}
	if IsLocal(o.Address) || o.WebConfig == "" && overLoopback(r) {
		return nil
	}
	const others = "other machines can reach this address, so pods are not served without "
	if o.WebConfig == "" {
		return errors.New(others + "authentication: use --web-config, or listen on 127.0.0.1")
	}
	config, err := readWebConfig(o.WebConfig)
	switch {
	case err != nil: // err may name files
		return errors.New("pods are not served: the web configuration cannot be read")
	case r.TLS == nil:
		return errors.New(others + "encryption: the --web-config needs a tls_server_config, from the start of this server")
	case len(config.Users) > 0 || len(r.TLS.VerifiedChains) > 0:
		return nil
	}
	return errors.New(others + "authentication: the --web-config must have basic_auth_users, or client_auth_type: RequireAndVerifyClientCert")
}

// stillAdmits returns a function that reports whether r would be let in again: its user is there, with the same password.
func (o *Options) stillAdmits(r *http.Request) func() bool {
	user, _, _ := r.BasicAuth()
	config, _ := readWebConfig(o.WebConfig) // the toolkit has read it
	return func() bool {
		now, err := readWebConfig(o.WebConfig)
		return err == nil && o.hidden(r) == nil && (len(now.Users) == 0 || config != nil && now.Users[user] == config.Users[user] && now.Users[user] != "")
	}
}

// IsLocal reports whether only this machine can reach an address. A nil address is one that no
// other machine reaches.
func IsLocal(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return address == nil || ok && tcp.IP.IsLoopback()
}

// overLoopback reports whether a request came over the loopback device, as requests of "kubectl
// port-forward" do: its client may enter the pod.
func overLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}

// guard refuses requests of clients that must not see pods. Every handler that names pods
// is behind it.
func (o *Options) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if err := cmp.Or(o.hidden(r), fromElsewhere(r)); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// fromElsewhere returns an error if a page of another site makes the request: such a page cannot
// read the answer, but could take all slots. Following a link is allowed.
func fromElsewhere(r *http.Request) error {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return errors.New("pods are not served to pages of other sites")
	}
	return nil
}

// isRebound reports whether a request reached the loopback device under a foreign
// host name. That happens in an attack by DNS rebinding: a browser on this machine
// loads a web page whose name then resolves to this machine. With TLS the browser
// detects this by the certificate.
func isRebound(r *http.Request) bool {
	if !overLoopback(r) || r.TLS != nil {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil
}
