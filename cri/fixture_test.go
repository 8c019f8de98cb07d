package cri_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// clientOf returns a client of a runtime served in memory, until the test ends.
func clientOf(t testing.TB, m *kit.Memory, opts cri.Options) *cri.Client {
	t.Helper()
	opts.DialOptions = append(opts.DialOptions, grpc.WithContextDialer(m.Dial))
	return newClient(t, "/in-memory", opts)
}

// connect serves fake and returns a client of it. Both end with the test.
func connect(t testing.TB, fake *rawruntime.Runtime, opts cri.Options) *cri.Client {
	t.Helper()
	m := &kit.Memory{}
	rawruntime.Serve(t, fake, m.Listen())
	return clientOf(t, m, opts)
}

// newClient returns a client of the runtime at endpoint until the test ends.
func newClient(t testing.TB, endpoint string, opts cri.Options) *cri.Client {
	t.Helper()
	client, err := cri.New(endpoint, opts)
	must(t, err)
	t.Cleanup(func() { must(t, client.Close()) })
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func listPods(t *testing.T, client *cri.Client) []*pleg.Pod {
	t.Helper()
	pods, err := client.ListPods(t.Context())
	must(t, err)
	return pods
}

// wantPods lists the pods and requires this number.
func wantPods(t *testing.T, client *cri.Client, want int) {
	t.Helper()
	if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != want {
		t.Errorf("got %d pods, %v; want %d", len(pods), err, want)
	}
}

// wantList lists the pods and requires this text of them.
func wantList(t *testing.T, client *cri.Client, want string) {
	t.Helper()
	if got := show(listPods(t, client)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

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

// ofPod names the pod of a sandbox.
func ofPod(s *runtimeapi.PodSandbox, namespace, name string) *runtimeapi.PodSandbox {
	s.Metadata.Namespace, s.Metadata.Name = namespace, name
	return s
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
