package simruntime_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// words are the containers of a pod in the order of their creation.
func words(pod *pleg.PodStatus) string {
	var all []string
	for _, c := range slices.Backward(pod.Containers) {
		word := fmt.Sprintf("%s#%d %v", c.Name, c.Attempt, c.State)
		if c.State == pleg.StateExited {
			word += fmt.Sprintf(" %d %s", c.ExitCode, c.Reason)
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

// Each step of a pod does what it says, or nothing if it returns an error.
func TestStepsOfAPod(t *testing.T) {
	type state = simruntime.State
	id := regexp.MustCompile(`[0-9a-f]{64}`)
	newest := func(s *state, name string) pleg.ContainerID {
		i := slices.IndexFunc(s.Pod("u").Containers, func(c *pleg.ContainerStatus) bool { return c.Name == name })
		return s.Pod("u").Containers[i].ID
	}
	exit := func(s *state) error { return s.ExitContainer(newest(s, "app"), 3, "Wrong") }
	restart := func(s *state) error { _, err := s.RestartContainer(newest(s, "app")); return err }
	add := func(s *state) error {
		_, err := s.AddContainer("u", pleg.ContainerStatus{Name: "debug", Attempt: 4})
		return err
	}
	rt := simruntime.New(simruntime.Options{DualStack: true})
	pod := rt.AddPod(simruntime.PodSpec{UID: "u", Containers: []pleg.ContainerStatus{
		{}, {State: pleg.StateExited}, {Name: "job", State: pleg.StateExited, ExitCode: 2},
	}})
	const rest = ", app-2#0 exited 0 Completed, job#0 exited 2 Error"
	const alone = "app-2#0 exited 0 Completed, job#0 exited 2 Error, app#2 "
	if got := words(pod); got != "app#0 running"+rest || pod.Namespace != "default" || len(pod.IPs) != 2 || strings.Contains(pod.IPs[0], ":") || !strings.Contains(pod.IPs[1], ":") {
		t.Errorf("the new pod is %+v with %s", pod, got)
	}
	for n, step := range []struct {
		do   func(*state) error
		err  string
		want string
	}{
		{exit, "", "app#0 exited 3 Wrong" + rest},
		{exit, "exit: container ID has exited: wrong state", "app#0 exited 3 Wrong" + rest},
		{restart, "", "app#0 exited 3 Wrong" + rest + ", app#1 running"},
		{restart, "", "app#0 exited 3 Wrong" + rest + ", app#1 exited 1 Error, app#2 running"},
		{func(s *state) error { return s.PruneDead("u") }, "", alone + "running"},
		{add, "", alone + "running, debug#4 running"},
		{func(s *state) error { return s.RemoveContainer(newest(s, "debug")) }, "", alone + "running"},
		{func(s *state) error { return s.RemoveContainer("other") }, "remove: container other: not found", alone + "running"},
		{func(s *state) error { return s.StopPod("u") }, "", alone + "exited 137 Error"},
		{func(s *state) error { return s.StopPod("u") }, "", alone + "exited 137 Error"},
		{add, "add container: sandbox ID is not ready: wrong state", alone + "exited 137 Error"},
		{restart, "restart: sandbox ID is not ready: wrong state", alone + "exited 137 Error"},
		{func(s *state) error { return s.StopPod("other") }, "stop: pod other: not found", alone + "exited 137 Error"},
		{func(s *state) error { return s.PruneDead("other") }, "prune: pod other: not found", alone + "exited 137 Error"},
		{func(s *state) error { _, err := s.AddContainer("other", pleg.ContainerStatus{}); return err }, "add container: pod other: not found", alone + "exited 137 Error"},
	} {
		rt.Update(func(s *state) {
			err, text := step.do(s), ""
			if err != nil {
				text = id.ReplaceAllString(err.Error(), "ID")
			}
			if text != step.err || errors.Is(err, simruntime.ErrState) != strings.HasSuffix(text, "wrong state") || errors.Is(err, simruntime.ErrNotFound) != strings.HasSuffix(text, "not found") {
				t.Errorf("step %d: %v, want %s", n, err, step.err)
			}
		})
		if got := words(rt.Pod("u")); got != step.want {
			t.Errorf("step %d: the pod has %s, want %s", n, got, step.want)
		}
	}
	if pod := rt.Pod("u"); len(pod.IPs) > 0 {
		t.Errorf("a pod that was stopped has the addresses %q", pod.IPs)
	}
	_, ofRestart := rt.RestartContainer("c")
	for says, err := range map[string]error{
		"exit: container c: not found": rt.ExitContainer("c", 1, ""), "restart: container c: not found": ofRestart,
		"stop: pod c: not found": rt.StopPod("c"), "remove: pod c: not found": rt.RemovePod("c"),
	} {
		if err == nil || err.Error() != says {
			t.Errorf("%v, want %s", err, says)
		}
	}
	defer func() {
		if got := recover(); fmt.Sprint(got) != "simruntime: pod u exists" {
			t.Errorf("a second pod with the UID: %v", got)
		}
	}()
	rt.AddPod(simruntime.PodSpec{UID: "u"})
}

// The next attempt of a container differs only in what must differ. Another container of its name that runs
// is no dead one.
func TestNextAttempt(t *testing.T) {
	rt := simruntime.New(simruntime.Options{})
	first := rt.AddPod(simruntime.PodSpec{UID: "u", Namespace: "shop", Name: "web-0", Containers: []pleg.ContainerStatus{
		{Name: "other", Attempt: 7, State: pleg.StateExited, Reason: "Done"},
		{Name: "app", Image: "app:7", Attempt: 3, Annotations: map[string]string{"a": "b"}},
	}}).Containers[0]
	next, err := rt.RestartContainer(first.ID)
	kit.Must(t, err)
	if next.ID == first.ID || !next.CreatedAt.After(first.StartedAt) || !next.StartedAt.After(next.CreatedAt) {
		t.Errorf("the next attempt is %+v, after %+v", next, first)
	}
	want := *first
	want.ID, want.CreatedAt, want.StartedAt = next.ID, next.CreatedAt, next.StartedAt
	want.Attempt, want.LogPath, want.Annotations = 4, "/var/log/pods/shop_web-0_u/app/4.log", maps.Clone(first.Annotations)
	want.Annotations["io.kubernetes.container.restartCount"] = "4"
	if !reflect.DeepEqual(*next, want) || want.Image != "app:7" || want.Annotations["a"] != "b" {
		t.Errorf("the next attempt is\n%+v, want\n%+v", *next, want)
	}
	rt.Update(func(s *simruntime.State) {
		_, err := s.AddContainer("u", pleg.ContainerStatus{Name: "app", Attempt: 9})
		kit.Must(t, err)
		kit.Must(t, s.PruneDead("u"))
	})
	kit.Must(t, rt.ExitContainer(next.ID, 4, "Bad"))
	if got, want := words(rt.Pod("u")), "other#7 exited 0 Done, app#4 exited 4 Bad, app#9 running"; got != want || len(rt.Pod("u").IPs) != 1 {
		t.Errorf("the pod has %s and the addresses %q, want %s and one", got, rt.Pod("u").IPs, want)
	}
	if next, err := rt.RestartContainer(next.ID); err != nil || next.Attempt != 10 || next.LogPath != "/var/log/pods/shop_web-0_u/app/10.log" {
		t.Errorf("the next attempt of an older one is %+v, %v, want the 10th", next, err)
	}
}

// The first containers have exited, and each has its dead attempts.
func TestPopulation(t *testing.T) {
	pod := simruntime.New(simruntime.Options{}).Populate(simruntime.Population{Pods: 1, Containers: 2, Exited: 1, Dead: 2})[0]
	first, second := pod.Containers[5].Name, pod.Containers[0].Name
	want := strings.ReplaceAll("%#0 exited 1 Error, %#1 exited 1 Error, %#2 exited 0 Completed, ", "%", first) +
		strings.ReplaceAll("%#0 exited 1 Error, %#1 exited 1 Error, %#2 running", "%", second)
	if got := words(pod); got != want || first == second {
		t.Errorf("the pod has %s, want %s", got, want)
	}
	names := make(map[string]bool)
	for _, c := range simruntime.New(simruntime.Options{}).Populate(simruntime.Population{Pods: 1, Containers: 5})[0].Containers {
		names[c.Name] = true
	}
	if len(names) != 5 {
		t.Errorf("5 containers have the names %v", names)
	}
}

// A pod is named as its owner names it: by a replica set, a daemon set or a job.
func TestNamesOfPods(t *testing.T) {
	form := regexp.MustCompile(`^((web|cart|checkout|catalog|api|worker|coredns)-[a-z0-9]{9}|node-exporter|kube-proxy|(report|thumbnails)-29[0-9]{6})-[a-z0-9]{5}$`)
	rt := simruntime.New(simruntime.Options{})
	rt.AddPod(simruntime.PodSpec{})
	rt.Populate(simruntime.Population{Pods: 300})
	addresses := make(map[string]bool)
	for _, pod := range rt.Pods() {
		if addresses[pod.IPs[0]] {
			t.Errorf("two pods have the address %s", pod.IPs[0])
		}
		addresses[pod.IPs[0]] = true
		if !form.MatchString(pod.Name) {
			t.Errorf("a pod has the name %s", pod.Name)
		}
	}
	rt, owners := simruntime.New(simruntime.Options{}), make(map[string]bool)
	for _, pod := range rt.Populate(simruntime.Population{Pods: 300, Containers: 2}) {
		owners[fmt.Sprintf("%s/%s %s %s", pod.Namespace, pod.Sandboxes[0].Labels["app"], pod.Containers[1].Name, pod.Containers[0].Name)] = true
	}
	if got, want := slices.Sorted(maps.Keys(owners)), []string{
		"batch/report report sidecar-1", "batch/thumbnails resize sidecar-1", "default/api api envoy", "default/worker worker sidecar-1",
		"kube-system/coredns coredns sidecar-1", "kube-system/kube-proxy kube-proxy sidecar-1", "monitoring/node-exporter node-exporter sidecar-1",
		"shop/cart cart sidecar-1", "shop/catalog catalog sidecar-1", "shop/checkout checkout envoy", "shop/web nginx metrics",
	}; !slices.Equal(got, want) {
		t.Errorf("the pods belong to %q, want %q", got, want)
	}
}

// A burst takes the oldest pods that it can change, and changes no other.
func TestBurst(t *testing.T) {
	for change, changed := range map[simruntime.Change]string{
		simruntime.Restart: "app#0 exited 1 Error, app#1 running", simruntime.Replace: "app#1 running",
		simruntime.Exit: "app#0 exited 1 Error", simruntime.Remove: "",
	} {
		for _, k := range []int{2, 9} {
			rt, uids := simruntime.New(simruntime.Options{}), []pleg.PodUID{"ended", "a", "b", "c"}
			for _, uid := range uids {
				containers := []pleg.ContainerStatus{{}}
				if uid == "ended" {
					containers = []pleg.ContainerStatus{{Name: "app", State: pleg.StateExited}, {Name: "app", Attempt: 1, State: pleg.StateExited}}
				}
				rt.AddPod(simruntime.PodSpec{UID: uid, Containers: containers})
			}
			if change != simruntime.Remove {
				uids = uids[1:]
			}
			taken := uids[:min(k, len(uids))]
			if got := rt.Burst(k, change); !slices.Equal(got, taken) {
				t.Errorf("change %d: %d pods are %q, want %q", change, k, got, taken)
			}
			if pod := rt.Pod("ended"); pod != nil && words(pod) != "app#0 exited 0 Completed, app#1 exited 0 Completed" {
				t.Errorf("change %d of %d pods: one of which nothing runs has %s", change, k, words(pod))
			}
			for _, uid := range uids {
				got, want := "", "app#0 running"
				if pod := rt.Pod(uid); pod != nil {
					got = words(pod)
				}
				if slices.Contains(taken, uid) {
					want = changed
				}
				if got != want {
					t.Errorf("change %d of %d pods: %s has %q, want %q", change, k, uid, got, want)
				}
			}
		}
	}
}
