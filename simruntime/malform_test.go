package simruntime_test

import (
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// strange describes what is wrong with the answers about one container.
type strange struct {
	noMetadata bool
	state      bool // undefined
	orphan     bool
	wrongID    bool
	copies     int
}

func lookAt(t *testing.T, client cri.RuntimeServiceClient, p simruntime.Pod) (s, others strange) {
	t.Helper()
	sandboxes := map[string]bool{}
	for _, sb := range listPods(t, client, nil) {
		sandboxes[sb.Id] = true
	}
	for _, c := range listContainers(t, client, nil) {
		into := &others
		if c.Labels["io.kubernetes.pod.uid"] == p.UID {
			into = &s
		}
		into.copies++
		into.noMetadata = into.noMetadata || c.Metadata == nil
		_, defined := cri.ContainerState_name[int32(c.State)]
		into.state = into.state || !defined
		into.orphan = into.orphan || !sandboxes[c.PodSandboxId]
		into.wrongID = into.wrongID || (into == &s && c.Id != p.Containers[0].ID)
	}
	return s, others
}

func TestMalformedLists(t *testing.T) {
	for name, tc := range map[string]struct {
		malform simruntime.Malform
		want    strange
	}{
		"nil metadata":  {simruntime.NilMetadata, strange{noMetadata: true, copies: 1}},
		"unknown state": {simruntime.UnknownState, strange{state: true, copies: 1}},
		"orphan":        {simruntime.OrphanContainers, strange{orphan: true, copies: 1}},
		"duplicate ids": {simruntime.DuplicateIDs, strange{copies: 2}},
		"wrong id":      {simruntime.WrongID, strange{wrongID: true, copies: 1}},
		"nothing":       {simruntime.NilStatus, strange{copies: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
				pods := populate(t, rt, 2, 1)
				inject(t, rt, simruntime.Fault{RPC: "ListContainers", PodUID: pods[0].UID, Malform: tc.malform})
				got, others := lookAt(t, client, pods[0])
				if got != tc.want {
					t.Errorf("got %+v, want %+v", got, tc.want)
				}
				if want := (strange{copies: 1}); others != want {
					t.Errorf("other pod: got %+v, want %+v", others, want)
				}
				rt.ClearAll()
				if got, _ := lookAt(t, client, pods[0]); got != (strange{copies: 1}) {
					t.Errorf("after ClearAll: %+v", got)
				}
			})
		})
	}
}

func TestMalformedSandboxList(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		pods := populate(t, rt, 2, 0)
		for _, m := range []simruntime.Malform{simruntime.NilMetadata, simruntime.UnknownState, simruntime.DuplicateIDs} {
			inject(t, rt, simruntime.Fault{ID: pods[0].Sandboxes[0].ID, Malform: m})
		}
		_, streamed := drainSandboxes(t, client)
		if len(streamed) != 3 {
			t.Errorf("streamed %v, want one entry twice", streamed)
		}
		items := listPods(t, client, nil)
		if len(items) != 3 {
			t.Fatalf("listed %v, want one entry twice", items)
		}
		if good := items[0]; good.Metadata == nil || good.State != cri.PodSandboxState_SANDBOX_READY {
			t.Errorf("other pod: %v", good)
		}
		for _, bad := range items[1:] {
			if bad.Metadata != nil || bad.State == cri.PodSandboxState_SANDBOX_READY {
				t.Errorf("spoiled pod: %v", bad)
			}
		}
	})
}

// strangeStatus describes what is wrong with a status.
type strangeStatus struct{ missing, noMetadata, state, wrongID bool }

func statusesOf(t *testing.T, client cri.RuntimeServiceClient, p simruntime.Pod) [2]strangeStatus {
	t.Helper()
	c, sb := containerStatus(t, client, p.Containers[0].ID), sandboxStatus(t, client, p.Sandboxes[0].ID)
	const containers, sandboxes = cri.ContainerState_CONTAINER_UNKNOWN, cri.PodSandboxState_SANDBOX_NOTREADY // the last ones defined
	return [2]strangeStatus{
		{c == nil, c.GetId() != "" && c.Metadata == nil, c.GetState() > containers, strings.HasPrefix(c.GetId(), "00000000")},
		{sb == nil, sb.GetId() != "" && sb.Metadata == nil, sb.GetState() > sandboxes, strings.HasPrefix(sb.GetId(), "00000000")},
	}
}

func TestMalformedStatuses(t *testing.T) {
	for malform, want := range map[simruntime.Malform]strangeStatus{
		simruntime.NilStatus:    {missing: true},
		simruntime.NilMetadata:  {noMetadata: true},
		simruntime.UnknownState: {state: true},
		simruntime.WrongID:      {wrongID: true},
	} {
		simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
			p := populate(t, rt, 1, 1)[0]
			inject(t, rt, simruntime.Fault{PodUID: p.UID, Malform: malform})
			if got := statusesOf(t, client, p); got != [2]strangeStatus{want, want} {
				t.Errorf("%v: container and sandbox status %+v, want %+v", malform, got, want)
			}
			rt.ClearAll()
			if got := statusesOf(t, client, p); got != [2]strangeStatus{} {
				t.Errorf("%v: after ClearAll: container and sandbox status %+v", malform, got)
			}
		})
	}
}
