package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// node is a simulated runtime with more pods than a real one on this machine can run.
type node struct {
	pods, containers, annotations int
	churn, projection             bool

	cri.UnimplementedRuntimeServiceServer
	mu        sync.Mutex // guards the fields below
	sandboxes []*cri.PodSandbox
	all       []*cri.Container
	byID      map[string]*cri.Container
	bySandbox map[string]*cri.PodSandbox
	made      int // containers that were ever made
	next      int // the container that is replaced next
}

// portion is the greatest number of items in a streamed response. containerd's 5000 of these do not
// fit into one message.
const portion = 1000

func (n *node) serve(socket string) error {
	n.byID, n.bySandbox = make(map[string]*cri.Container), make(map[string]*cri.PodSandbox)
	for i := range n.pods {
		n.sandboxes = append(n.sandboxes, n.sandbox(i))
		for j := range n.containers {
			n.all = append(n.all, n.container(i, j))
		}
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
func (n *node) sandbox(i int) *cri.PodSandbox {
	name, uid := fmt.Sprintf("web-%d-7d4b9c6f5d-x%04d", i%40, i), fmt.Sprintf("6f1c2d3e-0000-4000-8000-%012d", i)
	labels := map[string]string{
		"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-prod", "pod-template-hash": "7d4b9c6f5d",
		"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "production", "io.kubernetes.pod.uid": uid,
	}
	s := &cri.PodSandbox{
		Id:        fmt.Sprintf("%064x", i+1),
		Metadata:  &cri.PodSandboxMetadata{Name: name, Uid: uid, Namespace: "production"},
		State:     cri.PodSandboxState_SANDBOX_READY,
		CreatedAt: 1_790_000_000_000_000_000 + int64(i),
		Labels:    labels, Annotations: n.annotate("example.com/pod", map[string]string{
			"kubernetes.io/config.seen": "2026-11-28T03:04:05.000000006Z", "kubernetes.io/config.source": "api",
		}),
	}
	if n.projection {
		s.Annotations, s.Labels = nil, identity(labels)
	}
	n.bySandbox[s.Id] = s
	return s
}

func (n *node) container(pod, index int) *cri.Container {
	n.made++
	s := n.sandboxes[pod]
	name := fmt.Sprintf("container-%d", index)
	labels := identity(s.Labels)
	labels["io.kubernetes.container.name"] = name
	image := "sha256:" + strings.Repeat("5e", 32)
	c := &cri.Container{
		Id: fmt.Sprintf("%064x", 1<<40+n.made), PodSandboxId: s.Id,
		Metadata: &cri.ContainerMetadata{Name: name},
		Image:    &cri.ImageSpec{Image: image, UserSpecifiedImage: "registry.example.com/team/web:v1.2.3"},
		ImageRef: image, ImageId: image,
		State:     cri.ContainerState_CONTAINER_RUNNING,
		CreatedAt: 1_790_000_001_000_000_000 + int64(n.made),
		Labels:    labels, Annotations: n.annotate("example.com/container", map[string]string{
			"io.kubernetes.container.hash": "5a1b2c3d", "io.kubernetes.container.restartCount": "0",
			"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod": "30",
			"io.kubernetes.container.ports":            `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`,
		}),
	}
	if n.projection {
		c.Annotations, c.Image, c.ImageRef, c.ImageId = nil, &cri.ImageSpec{}, "", ""
	}
	n.byID[c.Id] = c
	return c
}

// identity returns the labels by which the kubelet finds the pod.
func identity(labels map[string]string) map[string]string {
	kept := make(map[string]string)
	for key, value := range labels {
		if strings.HasPrefix(key, "io.kubernetes.") {
			kept[key] = value
		}
	}
	return kept
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

// list returns all items. With churn, it first replaces the next containers.
func (n *node) list() ([]*cri.PodSandbox, []*cri.Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*cri.PodSandbox(nil), n.sandboxes...), append([]*cri.Container(nil), n.all...)
}

// change replaces a container of a hundredth of the pods.
func (n *node) change() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.churn {
		return
	}
	for range max(1, n.pods/100) {
		pod := n.next % n.pods
		at := pod*n.containers + n.next/n.pods%n.containers
		delete(n.byID, n.all[at].Id)
		n.all[at] = n.container(pod, at%n.containers)
		n.next++
	}
}

// Version implements the CRI.
func (n *node) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "relistcost", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// ListPodSandbox implements the CRI. It begins each relist.
func (n *node) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	n.change()
	sandboxes, _ := n.list()
	return &cri.ListPodSandboxResponse{Items: sandboxes}, nil
}

// ListContainers implements the CRI.
func (n *node) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	_, containers := n.list()
	return &cri.ListContainersResponse{Containers: containers}, nil
}

// StreamPodSandboxes implements the CRI.
func (n *node) StreamPodSandboxes(_ *cri.StreamPodSandboxesRequest, stream cri.RuntimeService_StreamPodSandboxesServer) error {
	n.change()
	sandboxes, _ := n.list()
	for len(sandboxes) > 0 {
		size := min(portion, len(sandboxes))
		if err := stream.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: sandboxes[:size]}); err != nil {
			return err
		}
		sandboxes = sandboxes[size:]
	}
	return nil
}

// StreamContainers implements the CRI.
func (n *node) StreamContainers(_ *cri.StreamContainersRequest, stream cri.RuntimeService_StreamContainersServer) error {
	_, containers := n.list()
	for len(containers) > 0 {
		size := min(portion, len(containers))
		if err := stream.Send(&cri.StreamContainersResponse{Containers: containers[:size]}); err != nil {
			return err
		}
		containers = containers[size:]
	}
	return nil
}

// PodSandboxStatus implements the CRI.
func (n *node) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.bySandbox[r.PodSandboxId]
	if s == nil {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		Network: &cri.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
	}}, nil
}

// ContainerStatus implements the CRI.
func (n *node) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.byID[r.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.CreatedAt,
		Image: &cri.ImageSpec{Image: "registry.example.com/team/web:v1.2.3"}, ImageRef: "sha256:5e", Labels: c.Labels, Annotations: c.Annotations,
	}}, nil
}
