//go:build linux

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

const prometheusAddress = "127.0.0.1:9090"

// Debian builds Prometheus without discovery in Kubernetes. The instance is the node, as
// with the PodMonitor.
const prometheusConfig = `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: pleg-pipeline
    static_configs: [{targets: ["%s:9713"], labels: {instance: ` + nodeName + `}}]
`

// startPrometheus runs Debian's Prometheus, which scrapes this pod, with the alerts of deploy/monitoring.
func (c *cluster) startPrometheus(podIP string) {
	c.t.Helper()
	dir := c.t.TempDir()
	text, err := os.ReadFile(filepath.Join(c.kustom, "deploy/monitoring/rules.yaml"))
	must(c.t, err)
	var rule struct {
		Spec json.RawMessage `json:"spec"`
	}
	must(c.t, yaml.Unmarshal(text, &rule))
	must(c.t, os.WriteFile(filepath.Join(dir, "rules.yaml"), rule.Spec, 0o600))
	must(c.t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), fmt.Appendf(nil, prometheusConfig, podIP), 0o600))
	start(c.t, "/usr/bin/prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", prometheusAddress)
}

// requireScraped requires that Prometheus reaches the daemon, that no alert fires, and
// that the daemon has seen the restart of containerd.
func (c *cluster) requireScraped() {
	c.t.Helper()
	for _, expr := range []string{
		fmt.Sprintf(`up{job="pleg-pipeline", instance=%q} == 1`, nodeName),
		`pleg_build_info{version="v0.1.0"}`,
		`max_over_time(pleg_events_total{type="ContainerDied"}[10m]) > 0`,
	} {
		await(c.t, expr, func(ctx context.Context) error { return c.query(ctx, expr) })
	}
	await(c.t, "end of all alerts", func(ctx context.Context) error {
		if err := c.query(ctx, `ALERTS{alertstate="firing"}`); err == nil {
			return fmt.Errorf("an alert fires")
		}
		return nil
	})
}

// query returns an error if an expression has no value.
func (c *cluster) query(ctx context.Context, expr string) error {
	body, err := get(ctx, http.DefaultClient, "http://"+prometheusAddress+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return err
	}
	if !strings.Contains(body, `"value":`) {
		return fmt.Errorf("%s has no value: %s", expr, body)
	}
	return nil
}

// get returns the body of a page.
func get(ctx context.Context, c *http.Client, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	return string(body), err
}
