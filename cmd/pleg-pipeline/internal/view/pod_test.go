package view_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func status() *pleg.PodStatus {
	return &pleg.PodStatus{
		UID: "u", Name: "web", Namespace: "shop",
		Containers: []*pleg.ContainerStatus{
			{ID: "c1", Name: "app", Attempt: 1, State: pleg.StateExited, ExitCode: 1},
			{ID: "c3", Name: "app", Attempt: 3, State: pleg.StateRunning},
			{ID: "d", Name: "sidecar", State: pleg.StateCreated},
		},
		Sandboxes: []*pleg.SandboxStatus{
			{ID: "s1", Attempt: 1, Ready: true, Labels: map[string]string{"app": "web"}},
			{ID: "s0", Labels: map[string]string{"app": "old"}},
		},
	}
}

func TestRestartsDoNotOverflow(t *testing.T) {
	of := status()
	for _, c := range of.Containers {
		c.Attempt = math.MaxUint32
	}
	if p := inspected(of); p.Restarts != 2*math.MaxUint32 {
		t.Errorf("%d restarts", p.Restarts)
	}
}

func TestNewCountsNewestContainers(t *testing.T) {
	p := inspected(status())
	if p.State != view.NotReady || p.Running != 1 || p.Total != 2 || p.Restarts != 3 || len(p.Containers) != 3 || p.Labels()["app"] != "web" {
		t.Errorf("pod %+v, want only the newest container of each name counted", p)
	}
	if c := p.Containers[0]; c.ExitCode == nil || *c.ExitCode != 1 || c.StartedAt != nil {
		t.Errorf("container %+v, want its exit code and no start time", c)
	}
	if c := p.Containers[1]; c.ExitCode != nil {
		t.Errorf("container %+v runs, want no exit code", c)
	}
}

// TestNewest compares two containers of one name, and two sandboxes like them.
func TestNewest(t *testing.T) {
	for name, test := range map[string][2]pleg.ContainerStatus{ // the first is the newest
		"attempt":                 {{Attempt: 1}, {Attempt: 0, CreatedAt: time.Unix(9, 0)}},
		"time":                    {{CreatedAt: time.Unix(9, 0)}, {CreatedAt: time.Unix(8, 0)}},
		"a time and none":         {{CreatedAt: time.Unix(9, 0)}, {}},
		"runs since 1970":         {{State: pleg.StateRunning}, {State: pleg.StateExited, CreatedAt: time.Unix(9, 0)}},
		"runs, and the last died": {{State: pleg.StateRunning}, {State: pleg.StateExited, Attempt: 1}},
	} {
		for _, first := range []int{0, 1} {
			s := &pleg.PodStatus{UID: "u"}
			for n := range 2 {
				c := test[(first+n)%2]
				c.Name, c.ID = "app", "older"
				if n == first {
					c.ID = "newest"
				}
				s.Containers = append(s.Containers, &c)
				s.Sandboxes = append(s.Sandboxes, &pleg.SandboxStatus{
					ID: c.ID, Attempt: c.Attempt, Ready: c.State == pleg.StateRunning, CreatedAt: c.CreatedAt, Labels: map[string]string{"is": string(c.ID)},
				})
			}
			p := inspected(s)
			if newest := p.Newest(); len(newest) != 1 || newest[0].ID != "newest" || p.Labels()["is"] != "newest" {
				t.Errorf("%s: %+v and the sandbox %v, want the newest", name, newest, p.Labels())
			}
		}
	}
}

func inspected(s *pleg.PodStatus) view.Pod {
	return view.NewPod(cache.Entry{UID: "u", Status: s, Last: s, LastAsOf: time.Unix(1000, 0)})
}

// TestListKeepsWhatIsKnown requires that a pod whose inspection hangs or fails keeps its
// name and last known state.
func TestListKeepsWhatIsKnown(t *testing.T) {
	listed := &pleg.Pod{
		UID: "u", Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"},
		Containers: []*pleg.Container{{ID: "c", Name: "app", State: pleg.StateRunning}},
		Sandboxes:  []*pleg.Container{{ID: "s", State: pleg.StateRunning}},
	}
	hung := pleg.Status{Overdue: []pleg.Inspection{{
		UID: "u", Namespace: "shop", Name: "web", Started: time.Unix(5, 0), Hung: true, Call: &pleg.Call{Method: "ContainerStatus", Container: "app"},
	}}}
	again := hung
	again.Quarantined = []pleg.Quarantined{{UID: "u", Namespace: "shop", Name: "web", Since: time.Unix(1, 0), Hung: 2}}
	away := pleg.Status{Quarantined: again.Quarantined}
	ofOther := pleg.Status{Details: nodestate.State{Stuck: []nodestate.Stuck{{UID: "other", Container: "c"}}}}
	for name, test := range map[string]struct {
		entries            []cache.Entry
		now                pleg.Status
		state              string
		stale, uninspected bool
		err                string
		call               string
	}{
		"good":                   {[]cache.Entry{{UID: "u", Status: status(), Last: status()}}, ofOther, "notready 1/2", false, false, "", ""},
		"failed":                 {[]cache.Entry{{UID: "u", Err: errors.New("broken"), Last: status(), Listed: listed}}, pleg.Status{}, "failed 1/2", true, false, "broken", ""},
		"hangs":                  {[]cache.Entry{{UID: "u", Status: status(), Last: status(), Listed: listed}}, hung, "hung 1/2", true, false, "", "ContainerStatus of app"},
		"never inspected":        {[]cache.Entry{{UID: "u", Err: &pleg.InspectionError{Err: cache.ErrNotInspected}, Listed: listed}}, pleg.Status{}, "ready 1/1", false, true, "", ""},
		"hangs from the start":   {[]cache.Entry{{UID: "u", Err: cache.ErrNotInspected, Listed: listed}}, hung, "hung 1/1", false, true, "", "ContainerStatus of app"},
		"failed from the start":  {[]cache.Entry{{UID: "u", Err: errors.New("broken"), Listed: listed}}, pleg.Status{}, "failed 1/1", false, true, "broken", ""},
		"not in the list yet":    {nil, hung, "hung 0/0", false, true, "", "ContainerStatus of app"},
		"not yet, not in flight": {nil, away, "hung 0/0", false, true, "", ""},
		"not yet, and again":     {nil, again, "hung 0/0", false, true, "", "ContainerStatus of app"},
	} {
		t.Run(name, func(t *testing.T) {
			pods := view.Pods(test.entries, test.now)
			if len(pods) != 1 {
				t.Fatalf("%d pods, want 1", len(pods))
			}
			p := pods[0]
			call := ""
			if p.Inspection != nil {
				call = p.Inspection.Call + " of " + p.Inspection.Container
			}
			state := fmt.Sprintf("%s %d/%d", p.State, p.Running, p.Total)
			if p.Name != "web" || p.Namespace != "shop" || state != test.state || p.Stale != test.stale || p.Uninspected != test.uninspected || p.Error != test.err || call != test.call {
				t.Errorf("pod %+v, want %+v", p, test)
			}
			if call != "" && (!p.Inspection.Since.Equal(time.Unix(5, 0)) || !p.Inspection.Hung) {
				t.Errorf("the inspection is %+v, want that it hangs since its start", p.Inspection)
			}
			if text, err := json.Marshal(p); err != nil || strings.Contains(string(text), "0001-01-01") {
				t.Errorf("JSON %s, %v, want no date of the year 1", text, err)
			}
		})
	}
}

// Pods with a worse trouble come first; of pods with the same trouble, the longest.
func TestTroubleIsOrdered(t *testing.T) {
	if all := strings.Join(view.States(), " "); all != "hung silent failed slow unknown notready ready" {
		t.Errorf("the states are %s, want the worst first", all)
	}
	pod := func(cause verdict.Cause, since int64) *view.Pod {
		p := inspected(status())
		p.SetFinding(verdict.Finding{Cause: cause, Since: time.Unix(since, 0)})
		return &p
	}
	long, short, slow := pod(verdict.HungContainer, 1), pod(verdict.HungContainer, 2), pod(verdict.SlowContainer, 0)
	for n, pair := range [][2]*view.Pod{{long, short}, {long, slow}, {short, slow}} {
		if view.CompareSeverity(pair[0], pair[1]) >= 0 || view.CompareSeverity(pair[1], pair[0]) <= 0 {
			t.Errorf("pair %d: the first is not before the second", n)
		}
	}
	contradictory, gone := pod(verdict.Contradiction, 3), view.NewPod(cache.Entry{UID: "gone"})
	if view.CompareSeverity(contradictory, &gone) != 0 || view.CompareSeverity(&gone, contradictory) != 0 {
		t.Errorf("of two %s pods, one comes first although one has no trouble: %s", contradictory.State, gone.State)
	}
	for severity, of := range map[verdict.Severity]*view.Pod{verdict.Problem: long, verdict.Warning: slow} {
		of.Finding.Severity = severity
	}
	short.Finding.Severity, long.Name, slow.Name, slow.Node = verdict.Problem, "long", "slow", "n1"
	for _, p := range []*view.Pod{long, short, slow} {
		p.Finding.What = "hangs"
	}
	whole := inspected(status())
	for _, test := range []struct {
		problem, text string
		pods          []view.Pod
		summaries     string
	}{
		{"", "PROBLEM: shop/long hangs since 02:00 (8.0s); 2 more", []view.Pod{*slow, whole, *short, *long}, "shop/long hangs since 02:00 (8.0s); 2 more|shop/web hangs since 02:00 (7.0s)|n1 shop/slow hangs since 02:00 (9.0s)"},
		{"", "WARNING: n1 shop/slow hangs since 02:00 (9.0s)", []view.Pod{whole, *slow}, "n1 shop/slow hangs since 02:00 (9.0s)"},
		{"", "PROBLEM: shop/web hangs since 02:00 (7.0s); 1 more", []view.Pod{*slow, *short}, "shop/web hangs since 02:00 (7.0s); 1 more|n1 shop/slow hangs since 02:00 (9.0s)"},
		{"n2 is silent", "PROBLEM: n2 is silent", []view.Pod{*slow, *long}, "n2 is silent|shop/long hangs since 02:00 (8.0s); 1 more|n1 shop/slow hangs since 02:00 (9.0s)"},
		{"", "OK: all nodes publish", []view.Pod{whole}, ""},
	} {
		v := view.ClusterVerdict(test.problem, test.pods, time.Unix(9, 0))
		var summaries []string
		for _, f := range v.Findings {
			summaries = append(summaries, f.Summary)
		}
		if v.Text != test.text || strings.Join(summaries, "|") != test.summaries {
			t.Errorf("the verdict is %q of %q, want %q of %q", v.Text, summaries, test.text, test.summaries)
		}
	}
}

// A pod is as old as its oldest sandbox or container. A pod that is only listed gets the labels of
// the list, so that a selector finds it.
func TestAgeAndLabels(t *testing.T) {
	s := status()
	s.Sandboxes[0].CreatedAt, s.Sandboxes[1].CreatedAt, s.Containers[0].CreatedAt = time.Unix(9, 0), time.Unix(5, 0), time.Unix(7, 0)
	if p := inspected(s); !p.CreatedAt().Equal(time.Unix(5, 0)) {
		t.Errorf("created at %v, want the time of the older sandbox", p.CreatedAt())
	}
	s.Sandboxes = nil
	if p := inspected(s); !p.CreatedAt().Equal(time.Unix(7, 0)) || p.Labels() != nil {
		t.Errorf("without a sandbox created at %v with the labels %v, want the time of its container, and no labels", p.CreatedAt(), p.Labels())
	}
	listed := &pleg.Pod{UID: "u", Labels: map[string]string{"app": "web"}, Sandboxes: []*pleg.Container{{ID: "s", State: pleg.StateRunning}}}
	if p := view.NewPod(cache.Entry{UID: "u", Err: cache.ErrNotInspected, Listed: listed}); p.Labels()["app"] != "web" {
		t.Errorf("labels %v, want the labels of the list", p.Labels())
	}
}

// TestOrders compares two pods, the second of which comes first in each order.
func TestOrders(t *testing.T) {
	if all := strings.Join(view.PodOrders(), " "); all != "name restarts age known" {
		t.Errorf("the orders are %s", all)
	}
	old, young := time.Unix(1, 0), time.Unix(2, 0)
	for order, pods := range map[string][2]view.Pod{
		"name":     {{Name: "b"}, {Name: "a"}},
		"restarts": {{Node: "a", Restarts: 1}, {Node: "b", Restarts: 2}},
		"age":      {{Node: "a", Sandboxes: []view.Sandbox{{CreatedAt: &old}}}, {Node: "b", Sandboxes: []view.Sandbox{{CreatedAt: &young}}}},
		"known":    {{Node: "a", CurrentAsOf: young}, {Node: "b", CurrentAsOf: old}},
	} {
		if got, back := view.ComparePods(order, &pods[0], &pods[1]), view.ComparePods(order, &pods[1], &pods[0]); got <= 0 || back >= 0 {
			t.Errorf("%s: %d and back %d for %+v", order, got, back, pods)
		}
		for _, ties := range [][2]view.Pod{ // the names decide, from the left to the right
			{{Node: "b", Namespace: "a", Name: "a", UID: "a"}, {Node: "a", Namespace: "b", Name: "b", UID: "b"}},
			{{Namespace: "b", Name: "a", UID: "a"}, {Namespace: "a", Name: "b", UID: "b"}},
			{{Name: "b", UID: "a"}, {Name: "a", UID: "b"}},
			{{UID: "b"}, {UID: "a"}},
		} {
			if got, back := view.ComparePods(order, &ties[0], &ties[1]), view.ComparePods(order, &ties[1], &ties[0]); got <= 0 || back >= 0 {
				t.Errorf("%s: %d and back %d for %+v", order, got, back, ties)
			}
		}
	}
}

// Programs get every fact of a pod, also of one that only a list shows.
func TestJSONOfAPod(t *testing.T) {
	if none, err := json.Marshal(view.Pods(nil, pleg.Status{})); err != nil || string(none) != "[]" {
		t.Errorf("no pods are %s, %v; want an empty list", none, err)
	}
	at := func(second int64) time.Time { return time.Unix(second, 0).UTC() }
	labels := map[string]string{"app": "web"}
	ended := pleg.ContainerStatus{
		ID: "c1", Name: "app", Attempt: 2, State: pleg.StateExited, ExitCode: 3, Reason: "Error", Message: "text", Image: "app:1", ImageRef: "app@1", LogPath: "/log",
		CreatedAt: at(2), StartedAt: at(3), FinishedAt: at(4),
	}
	created := ended
	created.ID, created.Name, created.State, created.Attempt = "c2", "other", pleg.StateCreated, 0
	listed := cache.Entry{UID: "u", Err: cache.ErrNotInspected, Listed: &pleg.Pod{
		UID: "u", Namespace: "shop", Name: "web-0", Labels: labels,
		Containers: []*pleg.Container{{ID: "c1", Name: "app", Attempt: 2, State: pleg.StateRunning, CreatedAt: at(2)}},
		Sandboxes:  []*pleg.Container{{ID: "s", Attempt: 1, State: pleg.StateExited, CreatedAt: at(1)}},
	}}
	status := &pleg.PodStatus{
		UID: "u", Namespace: "shop", Name: "web-0", IPs: []string{"10.0.0.7"}, Containers: []*pleg.ContainerStatus{&ended, &created},
		Sandboxes: []*pleg.SandboxStatus{{ID: "s", Attempt: 1, Ready: true, IPs: []string{"10.0.0.8"}, HostNetwork: true, Labels: labels, CreatedAt: at(1)}},
	}
	const container = `"image":"app:1","imageRef":"app@1","logPath":"/log","createdAt":"1970-01-01T00:00:02Z","startedAt":"1970-01-01T00:00:03Z","finishedAt":"1970-01-01T00:00:04Z"}`
	for want, e := range map[string]cache.Entry{
		`{"uid":"u","name":"web-0","namespace":"shop","state":"notready","severity":"warning","ips":["10.0.0.7"],"running":0,"total":2,"restarts":2,"containers":[` +
			`{"id":"c1","name":"app","attempt":2,"state":"exited","exitCode":3,"reason":"Error","message":"text",` + container + `,{"id":"c2","name":"other","attempt":0,"state":"created",` + container +
			`],"sandboxes":[{"id":"s","attempt":1,"state":"ready","ips":["10.0.0.8"],"hostNetwork":true,"labels":{"app":"web"},"createdAt":"1970-01-01T00:00:01Z"}],"currentAsOf":"1970-01-01T00:00:09Z"}`: {UID: "u", Status: status, Last: status, LastAsOf: at(9), CurrentAsOf: at(8)},
		`{"uid":"u","name":"web-0","namespace":"shop","state":"notready","severity":"warning","running":1,"total":1,"restarts":2,"containers":[{"id":"c1","name":"app","attempt":2,"state":"running","createdAt":"1970-01-01T00:00:02Z"}],` +
			`"sandboxes":[{"id":"s","attempt":1,"state":"notready","labels":{"app":"web"},"createdAt":"1970-01-01T00:00:01Z"}],"uninspected":true}`: listed,
	} {
		if got, err := json.Marshal(view.NewPod(e)); err != nil || string(got) != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, got, want)
		}
	}
}

// Programs get the trouble of a pod too. Its own name is the right one.
func TestJSONOfAPodInTrouble(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0).UTC() }
	last := &pleg.PodStatus{Namespace: "shop", Name: "web-0"}
	pods := view.Pods([]cache.Entry{
		{UID: "a", Last: last, LastAsOf: at(1), CurrentAsOf: at(2)},
		{UID: "b", Last: last, LastAsOf: at(3), CurrentAsOf: at(4), Err: errors.New("broken")},
	}, pleg.Status{
		At: at(30), Endpoint: "unix:///s",
		Overdue: []pleg.Inspection{
			{UID: "a", Namespace: "old", Name: "other", Started: at(5), Hung: true, Call: &pleg.Call{Method: "ContainerStatus", Container: "app"}},
			{UID: "c", Namespace: "shop", Name: "new", Started: at(6)},
		},
	})
	pods[0].Node = "n1"
	for n, want := range []string{
		`{"uid":"a","node":"n1","name":"web-0","namespace":"shop","state":"hung","severity":"problem","running":0,"total":0,"restarts":0,"stale":true,"inspection":{"since":"1970-01-01T00:00:05Z","hung":true,"call":"ContainerStatus","container":"app"},` +
			`"finding":{"cause":"hung container","severity":"problem","summary":"old/other hangs since 02:00 (25s) in ContainerStatus of app","evidence":"old/other hangs since 02:00 (25s) in ContainerStatus of app","advice":"do","subject":"old/other","what":"hangs","detail":" in ContainerStatus of app","since":"1970-01-01T00:00:05Z","attempts":1,"pod":"old/other","podUID":"a","container":"app","call":"ContainerStatus"},"currentAsOf":"1970-01-01T00:00:01Z"}`,
		`{"uid":"b","name":"web-0","namespace":"shop","state":"failed","severity":"problem","running":0,"total":0,"restarts":0,"error":"broken","stale":true,` +
			`"finding":{"cause":"runtime fails","severity":"problem","summary":"shop/web-0 cannot be inspected: broken","evidence":"shop/web-0 cannot be inspected: broken","advice":"do","subject":"shop/web-0","what":"cannot be inspected","detail":": broken","pod":"shop/web-0","podUID":"b"},"currentAsOf":"1970-01-01T00:00:03Z"}`,
		`{"uid":"c","name":"new","namespace":"shop","state":"hung","severity":"problem","running":0,"total":0,"restarts":0,"uninspected":true,"inspection":{"since":"1970-01-01T00:00:06Z","hung":false},` +
			`"finding":{"cause":"hung container","severity":"problem","summary":"shop/new hangs since 02:00 (24s)","evidence":"shop/new hangs since 02:00 (24s)","advice":"do","subject":"shop/new","what":"hangs","since":"1970-01-01T00:00:06Z","attempts":1,"pod":"shop/new","podUID":"c"}}`,
	} {
		pods[n].Finding.Advice = "do" // package verdict tests it
		if got, err := json.Marshal(pods[n]); err != nil || string(got) != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, got, want)
		}
	}
}

// A filter selects a pod by its namespace, its UID and the labels of its newest sandbox, all of them.
func TestWanted(t *testing.T) {
	p := inspected(status())
	for _, test := range []struct {
		filter pleg.Filter
		want   bool
	}{
		{pleg.Filter{}, true},
		{pleg.Filter{Namespaces: []string{"shop"}, PodUIDs: []pleg.PodUID{"u"}, Selector: "app=web"}, true},
		{pleg.Filter{Namespaces: []string{"web"}, Selector: "app=web"}, false},
		{pleg.Filter{PodUIDs: []pleg.PodUID{"shop"}, Selector: "app=web"}, false},
		{pleg.Filter{Namespaces: []string{"shop"}, Selector: "app=old"}, false},
	} {
		f, err := filter.New(test.filter)
		kit.Must(t, err)
		if got := p.Wanted(&f); got != test.want {
			t.Errorf("%+v selects the pod: %t", test.filter, got)
		}
		if unlabeled := view.NewPod(cache.Entry{UID: "u", Listed: &pleg.Pod{UID: "u", Namespace: "shop"}}); test.filter.Selector != "" && unlabeled.Wanted(&f) {
			t.Errorf("%+v selects a pod without labels", test.filter)
		}
	}
}
