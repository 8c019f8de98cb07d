package simruntime_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each answer about pods of a seed, with all fields, and the events of an end.
func TestAnswers(t *testing.T) {
	simulate(t, simruntime.Options{Seed: 3, DualStack: true}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		var text strings.Builder
		show := func(what string, message proto.Message, err error) {
			t.Helper()
			kit.Must(t, err)
			raw, err := protojson.Marshal(message)
			kit.Must(t, err)
			var fields any // protojson adds spaces at random
			kit.Must(t, json.Unmarshal(raw, &fields))
			line, err := json.Marshal(fields)
			kit.Must(t, err)
			text.WriteString(what + " " + string(line) + "\n")
		}
		rt.AddPod(simruntime.PodSpec{
			Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"},
			Containers: []pleg.ContainerStatus{{}, {Name: "job", Image: "job:7", State: pleg.StateExited, ExitCode: 2, Reason: "Wrong"}},
		})
		rt.Populate(simruntime.Population{Pods: 8, Containers: 1})
		ctx := t.Context()
		version, err := client.Version(ctx, &cri.VersionRequest{})
		show("version", version, err)
		state, err := client.Status(ctx, &cri.StatusRequest{})
		show("status", state, err)
		for _, sandbox := range listPods(t, client) {
			show("listed sandbox", sandbox, nil)
		}
		for _, container := range listContainers(t, client) {
			show("listed container", container, nil)
		}
		stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
		kit.Must(t, err)
		synctest.Wait()
		time.Sleep(time.Second)
		first := rt.Pods()[0]
		runs, err := client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(first.Containers[1].ID)})
		show("container that runs", runs, err)
		kit.Must(t, rt.StopPod(first.UID))
		for range 2 {
			event, err := stream.Recv()
			show("event", event, err)
		}
		for _, c := range first.Containers {
			st, err := client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(c.ID)})
			show("container", st, err)
		}
		for _, pod := range rt.Pods()[:2] {
			st, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: string(pod.Sandboxes[0].ID), Verbose: true})
			show("sandbox", st, err)
		}
		st, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: string(first.Sandboxes[0].ID)})
		kit.Must(t, err)
		if s := rt.Stats().RPCs["PodSandboxStatus"]; s.Calls != 3 || s.Verbose != 2 || st.GetStatus() == nil {
			t.Errorf("counted %+v, want 3 calls and 2 that are verbose", s)
		}
		counted := rt.Stats()
		dial, _ := kit.Serve(t, rt.Serve)
		files, err := cri.NewImageServiceClient(kit.Connect(t, dial)).ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		show("file systems", files, err)
		_, err = client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: "none"})
		text.WriteString("unknown container " + err.Error() + "\n")
		_, err = client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: "none"})
		text.WriteString("unknown sandbox " + err.Error() + "\n")
		if n := counted.Calls(); n != 11 { // a copy
			t.Errorf("counted %d calls, want 11", n)
		}
		kit.Golden(t, "testdata/answers.txt", text.String())
	})
}

// As with pod events of CRI-O, the status of a sandbox carries those of its containers, and the time of the answer.
func TestStatusesInSandbox(t *testing.T) {
	simulate(t, simruntime.Options{StatusesInSandbox: true}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		pod := rt.AddPod(simruntime.PodSpec{Containers: []pleg.ContainerStatus{{}, {State: pleg.StateExited}}})
		time.Sleep(time.Second)
		got, err := client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: string(pod.Sandboxes[0].ID)})
		kit.Must(t, err)
		if got.Timestamp != time.Now().UnixNano() || got.Status.GetId() != string(pod.Sandboxes[0].ID) || len(got.ContainersStatuses) != 2 {
			t.Errorf("got %v, want the sandbox, two containers and the present time", got)
		}
		for n, c := range got.ContainersStatuses { // the oldest first
			if want := containerStatus(t, client, pod.Containers[1-n].ID); !proto.Equal(c, want) {
				t.Errorf("container %d is %v, want %v", n, c, want)
			}
		}
		rt.Inject(simruntime.Fault{PodUID: pod.UID, Malform: simruntime.NilStatus})
		if got := sandboxStatus(t, client, pod.Sandboxes[0].ID); got != nil {
			t.Errorf("a fault has no effect: %v, want no status", got)
		}
	})
}
