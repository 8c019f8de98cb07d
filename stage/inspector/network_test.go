package inspector_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each step is an inspection: the status of the sandbox and the network events
// that follow. A bubble starts in the year 2000.
func TestNetworkEvents(t *testing.T) {
	const up, failed = "NetworkSetupCompleted(/s)", "NetworkFailed(/s)"
	var (
		early     = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
		late      = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		addresses = []string{"10.0.0.1"}
	)
	sandbox := func(ready bool, made time.Time, ips ...string) pleg.SandboxStatus {
		return pleg.SandboxStatus{ID: "s", Ready: ready, CreatedAt: made, IPs: ips}
	}
	onHost := func(ready bool) pleg.SandboxStatus {
		return pleg.SandboxStatus{ID: "s", Ready: ready, CreatedAt: late, HostNetwork: true}
	}
	type step struct {
		sandbox pleg.SandboxStatus
		want    string
	}
	for name, steps := range map[string][]step{
		"up at once":                 {{sandbox(true, late, addresses...), up}, {sandbox(true, late, addresses...), ""}},
		"up before this process":     {{sandbox(true, early, addresses...), up}},
		"up later":                   {{sandbox(true, late), ""}, {sandbox(true, late, addresses...), up}},
		"another address":            {{sandbox(true, late, "10.0.0.1"), up}, {sandbox(true, late, "10.0.0.2"), ""}},
		"not ready after it was up":  {{sandbox(true, late, addresses...), up}, {sandbox(false, late), ""}, {sandbox(false, late), ""}},
		"never up":                   {{sandbox(true, late), ""}, {sandbox(true, late), ""}, {sandbox(false, late), failed}, {sandbox(false, late), ""}},
		"failed at first inspection": {{sandbox(false, late), failed}, {sandbox(false, late), ""}},
		"no creation time":           {{sandbox(false, time.Time{}), failed}},
		"failed before this process": {{sandbox(false, early), ""}, {sandbox(false, early), ""}},
		"not ready, with an address": {{sandbox(false, late, addresses...), ""}},
		"host network":               {{onHost(true), ""}, {onHost(false), ""}},
		"host network, not ready":    {{onHost(false), ""}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			for n := range steps {
				f.runtime.SetStatus("a", &pleg.PodStatus{UID: "a", Sandboxes: []*pleg.SandboxStatus{&steps[n].sandbox}})
				_, o, _ := f.do(change(n, plegtest.Pod("a", "/s=running")))
				if got := plegtest.Words(o.Events...); got != steps[n].want {
					t.Errorf("step %d: events %q, want %q", n, got, steps[n].want)
				}
				for _, ev := range o.Events {
					if ev.PodUID != "a" || ev.PodName != "name-a" || ev.PodNamespace != "ns" || !ev.ObservedAt.Equal(at(n)) {
						t.Errorf("step %d: event %+v has a wrong pod or time", n, ev)
					}
				}
			}
		})
	}
}
