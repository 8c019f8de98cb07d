//go:build linux

package cluster_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

const natsURL = "nats://" + nodeIP + ":4222"

// requireAccepted requires that the API server accepts each folder that docs/operations.md
// says to apply.
func (c *cluster) requireAccepted() {
	c.t.Helper()
	for _, folder := range []string{"base", "overlays/crio", "overlays/k3s", "overlays/fleet"} {
		out := c.kubectl("apply", "--dry-run=server", "-k", filepath.Join(c.kustom, "deploy", folder))
		if !strings.Contains(out, "daemonset.apps/pleg-pipeline ") {
			c.t.Errorf("%s has no DaemonSet:\n%s", folder, out)
		}
	}
}

// requireFleet applies the fleet overlay with a real nats-server and requires that its
// stream contains the node and its pods.
func (c *cluster) requireFleet() {
	c.t.Helper()
	conf := filepath.Join(c.t.TempDir(), "nats.conf")
	kit.Must(c.t, os.WriteFile(conf, fmt.Appendf(nil, "listen: %q\njetstream { store_dir: %q }\n", nodeIP+":4222", c.t.TempDir()), 0o600))
	start(c.t, program(c.t, "nats-server"), "-c", conf)

	text, err := os.ReadFile(filepath.Join(c.kustom, "deploy/overlays/fleet/pleg-pipeline.yaml"))
	kit.Must(c.t, err)
	dir := c.overlay("fleet", fleet)
	config := strings.Replace(string(text), "nats://nats.nats.svc:4222", natsURL, 1)
	kit.Must(c.t, os.WriteFile(filepath.Join(dir, "pleg-pipeline.yaml"), []byte(config), 0o600))
	c.apply(dir)
	pod := c.pod()
	process.Eventually(c.t, "the node in the stream", func(ctx context.Context) error {
		out, err := process.Output(ctx, program(c.t, "pleg-pipeline"), "pods", "--fleet", natsURL, "--cluster", "example", "--output", "json")
		if err != nil {
			return err
		}
		if !strings.Contains(out, nodeName) || !strings.Contains(out, string(pod.UID)) {
			return fmt.Errorf("%s and pod %s are not in %s", nodeName, pod.UID, out)
		}
		return nil
	})
}

const webConfig = `tls_server_config: {cert_file: tls.crt, key_file: tls.key}
`

// requireTLS applies the base with TLS. It becomes ready only if the probes need no TLS.
func (c *cluster) requireTLS() {
	c.t.Helper()
	dir := c.overlay("tls", base+"components: [../deploy/components/web-config]\n")
	config := filepath.Join(dir, "web-config.yaml")
	kit.Must(c.t, os.WriteFile(config, []byte(webConfig), 0o600))
	cert, key := kit.SelfSigned(c.t)
	c.kubectl("-n", "pleg-pipeline", "create", "secret", "generic", "pleg-pipeline-web", "--from-file=tls.crt="+cert, "--from-file=tls.key="+key,
		"--from-file="+config)
	c.apply(dir)
	text, err := os.ReadFile(cert)
	kit.Must(c.t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}}}
	defer client.CloseIdleConnections()
	page, err := process.Get(process.Bounded(c.t), client, "https://"+c.pod().Status.PodIP+":9713/metrics")
	kit.Must(c.t, err)
	if !strings.Contains(page, "pleg_build_info") {
		c.t.Errorf("no metrics over TLS:\n%s", page)
	}
}
