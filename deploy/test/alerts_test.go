package deploy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// trouble describes a node, and the functions that begin and end a trouble on it.
type trouble struct {
	run        []string // flags of the daemon
	begin, end func(t *testing.T, n *node)
}

// troubles contains a trouble for each alert that reads more than the verdict. A trouble that needs
// a fault of the runtime restarts it.
var troubles = map[string]trouble{
	"PlegPipelineDown": {
		begin: func(_ *testing.T, n *node) { n.daemon.Kill() },
		end:   func(t *testing.T, n *node) { n.startDaemon(t) },
	},
	"PlegUnhealthy": {
		run:   []string{"--relist-threshold", "5s"},
		begin: func(_ *testing.T, n *node) { n.simulation.Kill() },
		end:   func(t *testing.T, n *node) { n.simulate(t) },
	},
	"PlegEventStreamMissesChanges": {
		// The stream is trusted again after a number of relists.
		run:   []string{"--events", "auto", "--relist-period", "100ms"},
		begin: func(t *testing.T, n *node) { n.simulate(t, "--fault", "GetContainerEvents/hang") },
		end:   func(t *testing.T, n *node) { n.simulate(t) },
	},
	"PlegSubscriberSlow": {
		begin: func(_ *testing.T, n *node) { _ = n.client.Pause() },
		end:   func(_ *testing.T, n *node) { _ = n.client.Continue() },
	},
}

// testedElsewhere are the alerts that need more than a node, and those that only read the verdict:
// rules_test.yaml contains their series, TestEverySurfaceSaysTheSame their troubles.
var testedElsewhere = []string{
	"PlegNodeWithoutAgent", "PlegRuntimeFails", "PlegListHangs", "PlegPodsHang", "PlegRuntimeSlow", "PlegRuntimeEndangered", "PlegFallback",
	"PlegRuntimeNotReady", "PlegListTooLarge",
	"PlegPublishingFails", "PlegExportingFails",
}

// TestAlerts causes each of these alerts on a node of its own. In a real Prometheus it must fire for
// this node and no other, and end with its cause.
func TestAlerts(t *testing.T) {
	rules := shortRules(t)
	nodes := make(map[string]*node)
	want := make(map[string]string) // the alert by instance
	for alert, trouble := range troubles {
		if !slices.Contains(rules.alerts, alert) {
			t.Fatalf("rules.yaml has the alerts %q, not %s", rules.alerts, alert)
		}
		n := startNode(t, trouble.run...)
		nodes[alert], want[n.listen] = n, alert
	}
	want[nodes["PlegUnhealthy"].listen] = "PlegRuntimeFails PlegUnhealthy"
	if len(troubles)+len(testedElsewhere) != len(rules.alerts) {
		t.Fatalf("rules.yaml has the alerts %q, of which %q have a test", rules.alerts, slices.Sorted(maps.Keys(troubles)))
	}
	p := startPrometheus(t, rules.text, slices.Collect(maps.Values(nodes))...)
	waitFor(t, "a scrape of each node", func() error { return p.expect(t.Context(), "up == 1", len(nodes)) })
	for _, metric := range rules.metrics {
		if strings.HasPrefix(metric, "pleg_fleet_") || strings.HasPrefix(metric, "pleg_otlp_") {
			continue // only with --nats and --otlp
		}
		if samples, err := p.query(t.Context(), metric); err != nil || len(samples) == 0 {
			t.Errorf("an alert reads %s: %d samples, %v", metric, len(samples), err)
		}
	}
	if t.Failed() {
		return
	}
	p.awaitAlerts(t, nil)
	for alert, trouble := range troubles {
		trouble.begin(t, nodes[alert])
	}
	p.awaitAlerts(t, want)
	for alert, trouble := range troubles {
		trouble.end(t, nodes[alert])
	}
	p.awaitAlerts(t, nil)
}

// rules are the alerts of deploy/monitoring with seconds in place of minutes.
type rules struct {
	text            []byte
	alerts, metrics []string
}

func shortRules(t *testing.T) (r rules) {
	t.Helper()
	var file struct {
		Spec struct {
			Groups []struct {
				Name  string           `json:"name"`
				Rules []map[string]any `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	readYAML(t, "../monitoring/rules.yaml", &file)
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			expr := fmt.Sprint(rule["expr"])
			r.alerts = append(r.alerts, fmt.Sprint(rule["alert"]))
			r.metrics = append(r.metrics, regexp.MustCompile(`\bpleg_\w+`).FindAllString(expr, -1)...)
			rule["for"] = "2s"
			expr = regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(expr, "[20s]")
			rule["expr"] = regexp.MustCompile(`> \d+0\b`).ReplaceAllString(expr, "> 4")
		}
	}
	text, err := yaml.Marshal(file.Spec)
	must(t, err)
	r.text = text
	return r
}

// awaitAlerts waits until these alerts fire, by instance, and no others.
func (p *prometheus) awaitAlerts(t *testing.T, want map[string]string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the alerts %v alone", want), func() error {
		samples, err := p.query(t.Context(), `ALERTS{alertstate="firing"}`)
		if err != nil {
			return err
		}
		slices.SortFunc(samples, func(a, b sample) int { return strings.Compare(a.Metric["alertname"], b.Metric["alertname"]) })
		got := make(map[string]string)
		for _, s := range samples {
			got[s.Metric["instance"]] = strings.TrimPrefix(got[s.Metric["instance"]]+" "+s.Metric["alertname"], " ")
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}
