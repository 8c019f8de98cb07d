package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// node is a simulated runtime with more pods than a real one on this machine can run.
type node struct {
	pods, containers, annotations int
	churn, projection             bool

	cri.RuntimeServiceServer // of runtime
	runtime                  *simruntime.Runtime
	next                     int // the container that is replaced next; only an update uses it
}

// portion is the greatest number of items in a streamed response. containerd's 5000 of these do not
// fit into one message.
const portion = 1000

func (n *node) serve(socket string) error {
	n.runtime = simruntime.New(simruntime.Options{})
	n.RuntimeServiceServer = n.runtime.Service()
	for i := range n.pods {
		n.runtime.AddPod(n.pod(i))
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	server := grpc.NewServer(grpc.MaxSendMsgSize(1 << 30))
	cri.RegisterRuntimeServiceServer(server, n)
	return server.Serve(listener)
}

// The names and sizes are those of a kubelet and of containerd.
func (n *node) pod(i int) simruntime.PodSpec {
	spec := simruntime.PodSpec{
		UID: pleg.PodUID(fmt.Sprintf("6f1c2d3e-0000-4000-8000-%012d", i)), Namespace: "production", Name: fmt.Sprintf("web-%d-7d4b9c6f5d-x%04d", i%40, i),
		Labels:      map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-prod", "pod-template-hash": "7d4b9c6f5d"},
		Annotations: n.annotate("example.com/pod", map[string]string{"kubernetes.io/config.seen": "2026-11-28T03:04:05.000000006Z", "kubernetes.io/config.source": "api"}),
	}
	if n.projection {
		spec.Labels = nil
	}
	for j := range n.containers {
		spec.Containers = append(spec.Containers, pleg.ContainerStatus{
			Name: fmt.Sprintf("container-%d", j), Image: "registry.example.com/team/web:v1.2.3",
			Annotations: n.annotate("example.com/container", map[string]string{
				"io.kubernetes.container.hash": "5a1b2c3d", "io.kubernetes.container.restartCount": "0",
				"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.container.terminationMessagePolicy": "File",
				"io.kubernetes.pod.terminationGracePeriod": "30",
				"io.kubernetes.container.ports":            `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`,
			}),
		})
	}
	return spec
}

// annotate adds annotations of 400 bytes, until they reach the size.
func (n *node) annotate(prefix string, m map[string]string) map[string]string {
	size := 0
	for key, value := range m {
		size += len(key) + len(value)
	}
	for i := 0; size < n.annotations; i++ {
		key := fmt.Sprintf("%s-%d", prefix, i)
		m[key] = strings.Repeat("x", max(0, min(400-len(key), n.annotations-size-len(key))))
		size += len(key) + len(m[key])
	}
	return m
}

// change replaces a container of a hundredth of the pods.
func (n *node) change() {
	if !n.churn {
		return
	}
	pods := n.runtime.Pods()
	n.runtime.Update(func(s *simruntime.State) {
		for range max(1, n.pods/100) {
			pod := s.Pod(pods[n.next%n.pods].UID)
			if _, err := s.RestartContainer(pod.Containers[len(pod.Containers)-1].ID); err != nil { // the oldest
				panic(err)
			}
			_ = s.PruneDead(pod.UID) // the pod exists
			n.next++
		}
	})
}

// ListPodSandbox implements the CRI. It begins each relist.
func (n *node) ListPodSandbox(ctx context.Context, _ *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	n.change()
	ready := &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{}} // all are ready; without a filter, bytes come
	resp, err := n.RuntimeServiceServer.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: ready})
	for i, s := range resp.GetItems() {
		if n.projection {
			resp.Items[i] = &cri.PodSandbox{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels}
		}
	}
	return resp, err
}

// ListContainers implements the CRI.
func (n *node) ListContainers(ctx context.Context, _ *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	running := &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	resp, err := n.RuntimeServiceServer.ListContainers(ctx, &cri.ListContainersRequest{Filter: running})
	for i, c := range resp.GetContainers() {
		if n.projection {
			resp.Containers[i] = &cri.Container{Id: c.Id, PodSandboxId: c.PodSandboxId, Metadata: c.Metadata, Image: &cri.ImageSpec{}, State: c.State, CreatedAt: c.CreatedAt, Labels: c.Labels}
		}
	}
	return resp, err
}

// StreamPodSandboxes implements the CRI.
func (n *node) StreamPodSandboxes(_ *cri.StreamPodSandboxesRequest, stream cri.RuntimeService_StreamPodSandboxesServer) error {
	list, err := n.ListPodSandbox(stream.Context(), nil)
	for items := range slices.Chunk(list.GetItems(), portion) {
		if err == nil {
			err = stream.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: items})
		}
	}
	return err
}

// StreamContainers implements the CRI.
func (n *node) StreamContainers(_ *cri.StreamContainersRequest, stream cri.RuntimeService_StreamContainersServer) error {
	list, err := n.ListContainers(stream.Context(), nil)
	for items := range slices.Chunk(list.GetContainers(), portion) {
		if err == nil {
			err = stream.Send(&cri.StreamContainersResponse{Containers: items})
		}
	}
	return err
}
