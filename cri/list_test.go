package cri_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func sandbox(id, uid string, state runtimeapi.PodSandboxState, created int64) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id: id, State: state, CreatedAt: created,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "name-" + id, Namespace: "ns-" + id, Uid: uid, Attempt: uint32(created)},
		Labels:   map[string]string{"of": id, "app": "web"},
	}
}

func container(id, sandboxID string, state runtimeapi.ContainerState, created int64) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id, PodSandboxId: sandboxID, State: state, CreatedAt: created,
		Metadata: &runtimeapi.ContainerMetadata{Name: "name-" + id, Attempt: uint32(created)},
	}
}

func labelled(c *runtimeapi.Container, uid string) *runtimeapi.Container {
	c.Labels = map[string]string{
		"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "labelled", "io.kubernetes.pod.namespace": "space",
	}
	return c
}

// show prints pods, for readable differences.
func show(pods []*pleg.Pod) string {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *pleg.Pod) int { return cmp.Compare(a.UID, b.UID) })
	var s strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&s, "%s %s/%s %v", p.UID, p.Namespace, p.Name, p.Labels)
		for _, c := range p.Sandboxes {
			fmt.Fprintf(&s, " [%s]", showContainer(c))
		}
		for _, c := range p.Containers {
			fmt.Fprintf(&s, " %s", showContainer(c))
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func showContainer(c *pleg.Container) string {
	created := int64(0)
	if !c.CreatedAt.IsZero() {
		created = c.CreatedAt.UnixNano()
	}
	return fmt.Sprintf("%s<%s %s#%d %s@%d", c.ID, c.SandboxID, c.Name, c.Attempt, c.State, created)
}

type listCase struct {
	name       string
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	want       string
}

func listCases() []listCase {
	const ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	const created, running, exited, unknown = runtimeapi.ContainerState_CONTAINER_CREATED,
		runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN
	return []listCase{
		{name: "an empty node"},
		{
			name:       "containers join by their sandbox, without labels",
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s1", "u1", ready, 1), sandbox("s2", "u2", notReady, 2)},
			containers: []*runtimeapi.Container{container("c2", "s2", exited, 3), container("c1", "s1", running, 4)},
			want: "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 running@1] c1<s1 name-c1#4 running@4\n" +
				"u2 ns-s2/name-s2 map[app:web of:s2] [s2< name-s2#2 exited@2] c2<s2 name-c2#3 exited@3\n",
		},
		{
			name:       "the sandbox takes precedence over the labels",
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s1", "u1", ready, 1)},
			containers: []*runtimeapi.Container{labelled(container("c1", "s1", running, 2), "u2")},
			want:       "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 running@1] c1<s1 name-c1#2 running@2\n",
		},
		{
			name:       "labels name the pod of a container whose sandbox is not listed",
			containers: []*runtimeapi.Container{labelled(container("c1", "s1", running, 2), "u1")},
			want:       "u1 space/labelled map[] c1<s1 name-c1#2 running@2\n",
		},
		{
			name:       "labels name the pod of a container whose sandbox is skipped",
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s1", "", ready, 1), sandbox("s2", "u1", ready, 1)},
			containers: []*runtimeapi.Container{labelled(container("c1", "s1", running, 2), "u1")},
			want:       "u1 ns-s2/name-s2 map[app:web of:s2] [s2< name-s2#1 running@1] c1<s1 name-c1#2 running@2\n",
		},
		{
			name: "sandboxes of one uid are one pod, named by the newest",
			sandboxes: []*runtimeapi.PodSandbox{
				sandbox("s1", "u1", notReady, 1), sandbox("s3", "u1", ready, 3), sandbox("s2", "u1", notReady, 2),
			},
			containers: []*runtimeapi.Container{container("c1", "s1", exited, 4), container("c3", "s3", running, 5)},
			want: "u1 ns-s3/name-s3 map[app:web of:s3] [s3< name-s3#3 running@3] [s2< name-s2#2 exited@2] [s1< name-s1#1 exited@1]" +
				" c3<s3 name-c3#5 running@5 c1<s1 name-c1#4 exited@4\n",
		},
		{
			name:      "newest first, then by id; no creation time is the oldest",
			sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", ready, 1)},
			containers: []*runtimeapi.Container{
				container("c0", "s1", created, 0), container("cb", "s1", created, 5),
				container("ca", "s1", created, 5), container("c9", "s1", created, 9),
			},
			want: "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 running@1] c9<s1 name-c9#9 created@9" +
				" ca<s1 name-ca#5 created@5 cb<s1 name-cb#5 created@5 c0<s1 name-c0#0 created@0\n",
		},
		{
			name:      "states this version has no name for are unknown",
			sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 7, 1)},
			containers: []*runtimeapi.Container{
				container("c1", "s1", unknown, 1), container("c2", "s1", 44, 2),
			},
			want: "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 unknown@1] c2<s1 name-c2#2 unknown@2 c1<s1 name-c1#1 unknown@1\n",
		},
	}
}

func TestListPods(t *testing.T) {
	for _, tt := range listCases() {
		t.Run(tt.name, func(t *testing.T) {
			client := connect(t, lists(tt.sandboxes, tt.containers), cri.Options{})
			for range 2 {
				pods, err := client.ListPods(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := show(pods); got != tt.want {
					t.Errorf("got\n%swant\n%s", got, tt.want)
				}
			}
		})
	}
}

func TestListedTimes(t *testing.T) {
	s := sandbox("s1", "u1", 0, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano())
	zero := container("c1", "s1", 0, time.Time{}.UnixNano()) // as containerd writes "never"
	pods, err := connect(t, lists([]*runtimeapi.PodSandbox{s}, []*runtimeapi.Container{zero}), cri.Options{}).ListPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := pods[0].Sandboxes[0].CreatedAt.UTC().String(); got != "2026-01-02 03:04:05.000000006 +0000 UTC" {
		t.Errorf("sandbox created at %s", got)
	}
	if got := pods[0].Containers[0].CreatedAt; !got.IsZero() {
		t.Errorf("container created at %v, want the zero time", got)
	}
}
