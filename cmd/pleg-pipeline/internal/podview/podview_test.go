package podview_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
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

func TestNewCountsNewestContainers(t *testing.T) {
	p := podview.New("u", status(), nil, time.Unix(1, 0))
	if p.State != podview.Ready || p.Running != 1 || p.Total != 2 || p.Restarts != 3 || len(p.Containers) != 3 || p.Labels()["app"] != "web" {
		t.Errorf("pod %+v, want only the newest container of each name counted", p)
	}
	if c := p.Containers[0]; c.ExitCode == nil || *c.ExitCode != 1 || c.StartedAt != nil {
		t.Errorf("container %+v, want its exit code and no start time", c)
	}
	if c := p.Containers[1]; c.ExitCode != nil {
		t.Errorf("container %+v runs, want no exit code", c)
	}
}

func TestFilter(t *testing.T) {
	web := podview.New("u", status(), nil, time.Time{})
	failed := podview.New("v", nil, errors.New("hangs"), time.Time{})
	for _, test := range []struct {
		namespaces  []string
		selector    string
		web, failed bool
	}{
		{nil, "", true, true},
		{nil, " ", true, true},
		{[]string{"bank", "shop"}, "", true, false},
		{[]string{"bank"}, "", false, false},
		{nil, "app=web", true, false},
		{nil, "app in (old)", false, false},
		{[]string{"shop"}, "app!=web", false, false},
	} {
		f := podview.Filter{Namespaces: test.namespaces}
		if err := f.Select(test.selector); err != nil {
			t.Fatal(err)
		}
		if got := f.Wants(&web); got != test.web {
			t.Errorf("%v %q wants the pod: %v", test.namespaces, test.selector, got)
		}
		if got := f.Wants(&failed); got != test.failed {
			t.Errorf("%v %q wants the failed pod: %v", test.namespaces, test.selector, got)
		}
	}
	if err := new(podview.Filter).Select("(("); err == nil {
		t.Error("Select(\"((\") = nil, want an error")
	}
}

func TestListHasPodsWithoutInspection(t *testing.T) {
	c := cache.New(time.Minute)
	c.Set("b", status(), nil, time.Unix(1, 0))
	c.Observe(time.Unix(2, 0), []pleg.PodUID{"a", "b"})
	pods := podview.List(c)
	if len(pods) != 2 || pods[0].UID != "a" || pods[0].Error == "" || pods[1].Name != "web" || pods[1].Error != "" {
		t.Errorf("pods %+v, want also the pod that was never inspected", pods)
	}
}

func FuzzSelect(f *testing.F) {
	for _, s := range []string{"", "app=web", "app!=web,tier in (a, b)", "!app", "app==", "=", "a in ("} {
		f.Add(s, "app", "web")
	}
	f.Fuzz(func(t *testing.T, selector, key, value string) {
		pod := podview.New("u", &pleg.PodStatus{Sandboxes: []*pleg.SandboxStatus{{Labels: map[string]string{key: value}}}}, nil, time.Time{})
		var plain, spaced podview.Filter
		err := plain.Select(selector)
		if again := spaced.Select(" " + selector + " "); (err != nil) != (again != nil) {
			t.Fatalf("%q: %v, with spaces around it %v", selector, err, again)
		}
		if err == nil && plain.Wants(&pod) != spaced.Wants(&pod) {
			t.Errorf("%q wants %v=%v, or not with spaces around it", selector, key, value)
		}
	})
}
