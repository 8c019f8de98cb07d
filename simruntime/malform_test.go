package simruntime_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// problems lists the mistakes in an answer about a container or a sandbox.
func problems(answer interface {
	proto.Message
	GetId() string
}, known []string,
) string {
	m := answer.ProtoReflect()
	if !m.IsValid() {
		return "nil"
	}
	var out []string
	fields := m.Descriptor().Fields()
	if !m.Has(fields.ByName("metadata")) {
		out = append(out, "no-metadata")
	}
	state := fields.ByName("state")
	if state.Enum().Values().ByNumber(m.Get(state).Enum()) == nil {
		out = append(out, "state")
	}
	if !slices.Contains(known, answer.GetId()) {
		out = append(out, "id")
	}
	if sandbox := fields.ByName("pod_sandbox_id"); sandbox != nil && !slices.Contains(known, m.Get(sandbox).String()) {
		out = append(out, "orphan")
	}
	return strings.Join(append(out, "."), " ")
}

// problemsOf lists the mistakes in an event: in its sandbox, in its containers and in itself.
func problemsOf(ev *cri.ContainerEventResponse, known []string) string {
	words := []string{problems(ev.GetPodSandboxStatus(), known)}
	for _, c := range ev.GetContainersStatuses() {
		words = append(words, problems(c, known))
	}
	if cri.ContainerEventType_name[int32(ev.GetContainerEventType())] == "" {
		words = append(words, "kind")
	}
	if !slices.Contains(known, ev.GetContainerId()) {
		words = append(words, "id")
	}
	return strings.Join(words, " ")
}

// TestMalformedAnswers injects faults about one of two pods, or about its sandbox or its container alone, lists
// and inspects both, and reads an event of each.
func TestMalformedAnswers(t *testing.T) {
	for malform, want := range map[simruntime.Malform]struct{ container, sandbox, status, event string }{
		"":                          {".", ".", ".", ". ."},
		simruntime.NilMetadata:      {"no-metadata .", "no-metadata .", "no-metadata .", "no-metadata . ."},
		simruntime.UnknownState:     {"state .", "state .", "state .", ". state . kind"},
		simruntime.NilStatus:        {".", ".", "nil", "nil ."},
		simruntime.OrphanContainers: {"orphan .", ".", ".", ". ."},
		simruntime.DuplicateIDs:     {". .", ". .", ".", ". . ."},
		simruntime.WrongID:          {"id .", "id .", "id .", ". . id"},
	} {
		for _, of := range []string{"pod", "sandbox", "container"} {
			name, want := of+" "+string(malform), want
			simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
				pods := rt.Populate(simruntime.Population{Pods: 2, Containers: 1})
				known, ofContainer, ofSandbox := idsOf(pods), want.status, want.status
				fault := simruntime.Fault{Malform: malform}
				switch of {
				case "pod":
					fault.PodUID = pods[0].UID
				case "sandbox":
					fault.ID, ofContainer = pods[0].Sandboxes[0].ID, "."
				case "container":
					fault.ID, ofSandbox, want.sandbox = pods[0].Containers[0].ID, ".", "."
				}
				rt.Inject(fault)
				events, err := client.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
				kit.Must(t, err)
				synctest.Wait()
				var containers, sandboxes []string
				for _, c := range listContainers(t, client) {
					containers = append(containers, problems(c, known))
				}
				for _, sb := range listPods(t, client) {
					sandboxes = append(sandboxes, problems(sb, known))
				}
				// The other pod is newer: it comes first.
				for what, list := range map[string][2]string{
					"containers": {strings.Join(containers, " "), ". " + want.container},
					"sandboxes":  {strings.Join(sandboxes, " "), ". " + want.sandbox},
				} {
					if list[0] != list[1] {
						t.Errorf("%s: %s: %s, want %s", name, what, list[0], list[1])
					}
				}
				for i, want := range []string{ofContainer + " " + ofSandbox, ". ."} {
					got := problems(containerStatus(t, client, pods[i].Containers[0].ID), known) + " " + problems(sandboxStatus(t, client, pods[i].Sandboxes[0].ID), known)
					if got != want {
						t.Errorf("%s: statuses of pod %d: %s, want %s", name, i, got, want)
					}
				}
				for i, want := range []string{want.event, ". ."} {
					kit.Must(t, rt.ExitContainer(pods[i].Containers[0].ID, 0, ""))
					ev, err := events.Recv()
					kit.Must(t, err)
					if got := problemsOf(ev, known); got != want {
						t.Errorf("%s: event of pod %d: %s, want %s", name, i, got, want)
					}
				}
			})
		}
	}
}

// Several faults of one answer all happen, each to what it is about. A fault of another pod between them
// changes nothing.
func TestSeveralMalformations(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		pods := rt.Populate(simruntime.Population{Pods: 2, Containers: 1})
		pod, other, known := pods[0], pods[1], idsOf(pods)
		rt.Inject(simruntime.Fault{PodUID: other.UID, Malform: simruntime.DuplicateIDs})
		rt.Inject(simruntime.Fault{PodUID: pod.UID, Malform: simruntime.NilMetadata})
		rt.Inject(simruntime.Fault{PodUID: other.UID, Malform: simruntime.DuplicateIDs})
		rt.Inject(simruntime.Fault{ID: pod.Sandboxes[0].ID, Malform: simruntime.WrongID})
		rt.Inject(simruntime.Fault{PodUID: pod.UID, Malform: simruntime.UnknownState})
		rt.Inject(simruntime.Fault{ID: pod.Containers[0].ID, Malform: simruntime.OrphanContainers})
		events, err := client.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
		kit.Must(t, err)
		synctest.Wait()
		kit.Must(t, rt.ExitContainer(pod.Containers[0].ID, 0, ""))
		ev, err := events.Recv()
		kit.Must(t, err)
		containers, sandboxes := listContainers(t, client), listPods(t, client)
		for what, got := range map[string][2]string{
			"its container":       {problems(containers[len(containers)-1], known), "no-metadata state id orphan ."},
			"its sandbox":         {problems(sandboxes[len(sandboxes)-1], known), "no-metadata state id ."},
			"its sandbox's state": {problems(sandboxStatus(t, client, pod.Sandboxes[0].ID), known), "no-metadata state id ."},
			"its container's":     {problems(containerStatus(t, client, pod.Containers[0].ID), known), "no-metadata state ."},
			"its event":           {problemsOf(ev, known), "no-metadata . state . kind id"},
			"the other container": {problems(containers[0], known), "."},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: %s, want %s", what, got[0], got[1])
			}
		}
		if len(containers) != 4 || len(sandboxes) != 4 {
			t.Errorf("%d containers and %d sandboxes are listed, want those of the other pod three times", len(containers), len(sandboxes))
		}
	})
}

// A fault of one event stream changes nothing for another.
func TestMalformedEventsOfOneClient(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		rt.Inject(simruntime.Fault{RPC: "GetContainerEvents", Loss: 1, Times: 1})
		rt.Inject(simruntime.Fault{RPC: "GetContainerEvents", Malform: simruntime.WrongID, After: 1, Times: 1})
		rt.Inject(simruntime.Fault{RPC: "GetContainerEvents", Latency: time.Second, After: 2}) // it gets the same event later
		var streams [3]cri.RuntimeService_GetContainerEventsClient
		for i := range streams {
			stream, err := client.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
			kit.Must(t, err)
			synctest.Wait()
			streams[i] = stream
		}
		p := rt.AddPod(simruntime.PodSpec{})
		for i, stream := range streams[1:] {
			ev, err := stream.Recv()
			kit.Must(t, err)
			if wrong := ev.ContainerId != string(p.Sandboxes[0].ID); wrong != (i == 0) {
				t.Errorf("the event of client %d has a wrong id: %t", i, wrong)
			}
		}
	})
}

func containerStatus(t *testing.T, client cri.RuntimeServiceClient, id pleg.ContainerID) *cri.ContainerStatus {
	t.Helper()
	resp, err := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: string(id)})
	kit.Must(t, err)
	return resp.Status
}

func sandboxStatus(t *testing.T, client cri.RuntimeServiceClient, id pleg.ContainerID) *cri.PodSandboxStatus {
	t.Helper()
	resp, err := client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: string(id)})
	kit.Must(t, err)
	return resp.Status
}
