package inspector_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each step is an inspection: the pod, the address that the runtime returns (or
// "fails"), and the address in the cache.
func TestAddresses(t *testing.T) {
	type step struct{ words, ip, want string }
	const fails = "fails"
	for name, steps := range map[string][]step{
		"kept if the sandbox is not ready": {
			{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/s=exited", "", "10.0.0.1"}, {"/s=exited", "", "10.0.0.1"},
		},
		"kept without a sandbox":                       {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"c=exited", "", "10.0.0.1"}},
		"kept after a failed inspection":               {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/s=exited", fails, ""}, {"/s=exited", "", "10.0.0.1"}},
		"dropped if a sandbox without one is ready":    {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/t=running /s=exited", "", ""}, {"/s=exited", "", ""}},
		"replaced by the address of a new sandbox":     {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/t=running /s=exited", "10.0.0.2", "10.0.0.2"}},
		"replaced by the address of an exited sandbox": {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/s=exited", "10.0.0.3", "10.0.0.3"}},
		"none": {{"/s=running", "", ""}, {"/s=exited", "", ""}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			for n, step := range steps {
				pod := plegtest.Pod("a", step.words)
				f.runtime.SetStatus("a", plegtest.Status(pod, strings.Fields(step.ip)...))
				if f.runtime.SetInspectFault(nil); step.ip == fails {
					f.runtime.SetInspectFault(plegtest.Fail(errInspect))
				}
				f.do(change(n, pod))
				got := ""
				if s, err := f.cache.Get("a"); err == nil {
					got = strings.Join(s.IPs, " ")
				}
				if got != step.want {
					t.Errorf("step %d: addresses = %q, want %q", n, got, step.want)
				}
			}
		})
	}
}

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
		return pleg.SandboxStatus{ID: "s", Attempt: 2, Ready: ready, CreatedAt: made, IPs: ips}
	}
	onHost := func(ready bool) pleg.SandboxStatus {
		return pleg.SandboxStatus{ID: "s", Ready: ready, CreatedAt: late, HostNetwork: true}
	}
	type step struct {
		sandbox pleg.SandboxStatus
		want    string
	}
	for name, steps := range map[string][]step{
		"up at once":                             {{sandbox(true, late, addresses...), up}, {sandbox(true, late, addresses...), ""}},
		"up before this process":                 {{sandbox(true, early, addresses...), up}},
		"up later":                               {{sandbox(true, late), ""}, {sandbox(true, late, addresses...), up}},
		"another address":                        {{sandbox(true, late, "10.0.0.1"), up}, {sandbox(true, late, "10.0.0.2"), ""}},
		"not ready after it was up":              {{sandbox(true, late, addresses...), up}, {sandbox(false, late), ""}, {sandbox(false, late), ""}},
		"never up":                               {{sandbox(true, late), ""}, {sandbox(true, late), ""}, {sandbox(false, late), failed}, {sandbox(false, late), ""}},
		"failed at first inspection":             {{sandbox(false, late), failed}, {sandbox(false, late), ""}},
		"made as this process begins":            {{sandbox(false, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), ""}},
		"no creation time":                       {{sandbox(false, time.Time{}), failed}},
		"failed before this process":             {{sandbox(false, early), ""}, {sandbox(false, early), ""}},
		"not ready, with an address":             {{sandbox(false, late, addresses...), ""}},
		"not ready, with an address, after none": {{sandbox(true, late), ""}, {sandbox(false, late, addresses...), ""}},
		"host network":                           {{onHost(true), ""}, {onHost(false), ""}},
		"host network, not ready":                {{onHost(false), ""}},
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
					if ev.PodUID != "a" || ev.PodName != "name-a" || ev.PodNamespace != "ns" || ev.ContainerName != "name-a" || !ev.Sandbox || ev.Replayed || ev.Attempt != 2 || !ev.ObservedAt.Equal(at(n)) {
						t.Errorf("step %d: event %+v has a wrong pod, attempt or time", n, ev)
					}
				}
			}
		})
	}
}

// A sandbox of which there is nothing to say hides no other.
func TestNetworkEventsOfSeveralSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		f.runtime.SetStatus("a", &pleg.PodStatus{UID: "a", Sandboxes: []*pleg.SandboxStatus{
			{ID: "host", Ready: true, HostNetwork: true}, {ID: "waits", Ready: true}, {ID: "up", Ready: true, IPs: []string{"10.0.0.1"}},
		}})
		_, o, _ := f.do(change(1, plegtest.Pod("a", "/host=running /waits=running /up=running")))
		if got, want := plegtest.Words(o.Events...), "NetworkSetupCompleted(/up)"; got != want {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// The network of a sandbox that the first list showed was there before, as the sandbox was.
func TestNetworkEventsOfTheFirstList(t *testing.T) {
	for _, found := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			pod := plegtest.Pod("a", "/s=running")
			f.runtime.SetStatus("a", plegtest.Status(pod, plegtest.Address))
			c := change(0, pod)
			c.Events = []pleg.Event{
				{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "other", Sandbox: true, Replayed: !found},
				{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "s", Sandbox: true, Replayed: found},
			}
			_, o, _ := f.do(c)
			if last := o.Events[len(o.Events)-1]; last.Type != pleg.NetworkSetupCompleted || last.Replayed != found {
				t.Errorf("the last event is %+v, want that of the network, replayed: %v", last, found)
			}
		})
	}
}

// Each step is an inspection of the pod, and whether the final status of c is kept after it.
func TestFinalStatusesOfRemovedContainersAreKept(t *testing.T) {
	type step struct {
		words string
		kept  bool
	}
	const gone, fails = "gone", "fails"
	for name, steps := range map[string][]step{
		"removed after it exited":            {{"c=exited d=running", false}, {"d=running", true}},
		"removed together":                   {{"b=exited c=exited d=running", false}, {"d=running", true}},
		"still there":                        {{"c=exited d=running", false}, {"c=exited d=running", false}},
		"removed while running":              {{"c=running d=running", false}, {"d=running", false}},
		"removed with its pod":               {{"c=exited d=running", false}, {gone, true}},
		"removed before a failed inspection": {{"c=exited d=running", false}, {fails, false}, {"d=running", true}},
		"never inspected":                    {{gone, false}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			for n, s := range steps {
				switch s.words {
				case fails:
					f.runtime.SetInspectFault(plegtest.Fail(errInspect))
					f.do(change(n, plegtest.Pod("a", "d=running")))
					f.runtime.SetInspectFault(nil)
				case gone:
					f.gone <- stage.Change{UID: "a", At: at(n)}
					<-f.settled
				default:
					f.do(change(n, plegtest.Pod("a", s.words)))
				}
				if got := f.cache.GetRemoved("c"); (got != nil) != s.kept || got != nil && got.ExitCode != 3 {
					t.Errorf("step %d: kept %+v, want the final status: %v", n, got, s.kept)
				}
				if got := f.cache.GetRemoved("d"); got != nil {
					t.Errorf("step %d: kept %+v of a container that ran", n, got)
				}
			}
		})
	}
}
