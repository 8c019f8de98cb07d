//go:build linux

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

const prometheusAddress = "127.0.0.1:9090"

// Debian builds Prometheus without discovery in Kubernetes, so the test names the target.
const prometheusConfig = `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: pleg-pipeline
    file_sd_configs: [{files: [targets.yaml], refresh_interval: 1s}]
`

// minutes matches the durations of the alerts. The test replaces them by seconds.
var minutes = regexp.MustCompile(`\b\d+m\b`)

// startPrometheus runs Debian's Prometheus with the alerts of deploy/monitoring.
func (c *cluster) startPrometheus() {
	c.t.Helper()
	c.prometheus = c.t.TempDir()
	text, err := os.ReadFile(filepath.Join(c.kustom, "deploy/monitoring/rules.yaml"))
	kit.Must(c.t, err)
	var rule struct {
		Spec json.RawMessage `json:"spec"`
	}
	kit.Must(c.t, yaml.Unmarshal(minutes.ReplaceAll(text, []byte("10s")), &rule))
	kit.Must(c.t, os.WriteFile(filepath.Join(c.prometheus, "rules.yaml"), rule.Spec, 0o600))
	kit.Must(c.t, os.WriteFile(filepath.Join(c.prometheus, "prometheus.yaml"), []byte(prometheusConfig), 0o600))
	start(c.t, "/usr/bin/prometheus", "--config.file", filepath.Join(c.prometheus, "prometheus.yaml"),
		"--storage.tsdb.path", filepath.Join(c.prometheus, "data"), "--web.listen-address", prometheusAddress)
}

// scrape makes Prometheus scrape the running daemon, which must report this version. The instance
// is the node, as with the PodMonitor.
func (c *cluster) scrape(version string) {
	c.t.Helper()
	targets := fmt.Sprintf("[{targets: [%q], labels: {instance: %s}}]\n", c.pod().Status.PodIP+":9713", nodeName)
	path := filepath.Join(c.prometheus, "targets.yaml")
	kit.Must(c.t, os.WriteFile(path+".part", []byte(targets), 0o600))
	kit.Must(c.t, os.Rename(path+".part", path))
	c.awaitQuery(fmt.Sprintf(`up{job="pleg-pipeline", instance=%q} == 1`, nodeName))
	c.awaitQuery(fmt.Sprintf(`pleg_build_info{version=%q}`, version))
}

// requireScraped requires that Prometheus counted the events of the storm, and that no alert fires.
func (c *cluster) requireScraped() {
	c.t.Helper()
	c.awaitQuery(`max_over_time(pleg_events_total{type="ContainerDied"}[10m]) > 0`)
	c.awaitNoAlert()
}

// doctor runs the program on the node, as docs/operations.md says.
const doctor = `/proc/$(pgrep -x pleg-pipeline)/root/pleg-pipeline doctor`

// requireAlert requires that alerts fire while the runtime is down, that the doctor names the
// runtime, and that both end with the outage.
func (c *cluster) requireAlert() {
	c.t.Helper()
	c.scrape("v0.1.1")
	c.awaitNoAlert()
	c.node.containerd.Kill()
	for _, alert := range []string{"PlegRuntimeFails", "PlegUnhealthy"} { // after one minute, and after three
		c.awaitQuery(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing", instance=%q}`, alert, nodeName))
	}
	out, err := exec.CommandContext(process.Bounded(c.t), "sh", "-c", doctor).CombinedOutput()
	if err == nil || !strings.Contains(string(out), containerdSocket) {
		c.t.Errorf("doctor: %v\n%s", err, out)
	}
	c.node.startContainerd()
	c.awaitNoAlert()
	_, err = process.Output(process.Bounded(c.t), "sh", "-c", doctor)
	kit.Must(c.t, err)
}

func (c *cluster) awaitQuery(expr string) {
	c.t.Helper()
	process.Eventually(c.t, expr, func(ctx context.Context) error { return c.query(ctx, expr) })
}

func (c *cluster) awaitNoAlert() {
	c.t.Helper()
	c.awaitQuery(`absent(ALERTS{alertstate="firing"})`)
}

// query returns an error if an expression yields no value.
func (c *cluster) query(ctx context.Context, expr string) error {
	body, err := process.Get(ctx, http.DefaultClient, "http://"+prometheusAddress+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return err
	}
	if !strings.Contains(body, `"value":`) {
		return fmt.Errorf("%s has no value: %s", expr, body)
	}
	return nil
}
