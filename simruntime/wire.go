package simruntime

import (
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var wireStates = map[pleg.State]cri.ContainerState{
	pleg.StateCreated: cri.ContainerState_CONTAINER_CREATED,
	pleg.StateRunning: cri.ContainerState_CONTAINER_RUNNING,
	pleg.StateExited:  cri.ContainerState_CONTAINER_EXITED,
}

// show makes the clients' view of a sandbox.
func (sb *sandbox) show(of *pleg.SandboxStatus) {
	sb.of = of
	sb.status = &cri.PodSandboxStatus{
		Id: string(of.ID), Metadata: sb.meta, CreatedAt: of.CreatedAt.UnixNano(), Network: &cri.PodSandboxNetworkStatus{},
		State:  cri.PodSandboxState_SANDBOX_NOTREADY,
		Linux:  &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
		Labels: of.Labels, Annotations: of.Annotations,
	}
	if of.Ready {
		sb.status.State, sb.status.Network.Ip = cri.PodSandboxState_SANDBOX_READY, of.IPs[0]
		for _, ip := range of.IPs[1:] {
			sb.status.Network.AdditionalIps = append(sb.status.Network.AdditionalIps, &cri.PodIP{Ip: ip})
		}
	}
	st := sb.status
	sb.item = &cri.PodSandbox{
		Id: st.Id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
	}
	sb.element = marshal(&cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{sb.item}})
	sb.answer = marshal(&cri.PodSandboxStatusResponse{Status: st})
}

// show makes the clients' view of a container.
func (c *container) show(of *pleg.ContainerStatus) {
	c.of = of
	c.status = &cri.ContainerStatus{
		Id: string(of.ID), Metadata: &cri.ContainerMetadata{Name: of.Name, Attempt: of.Attempt}, State: wireStates[of.State],
		CreatedAt: of.CreatedAt.UnixNano(), StartedAt: wireTime(of.StartedAt), FinishedAt: wireTime(of.FinishedAt),
		ExitCode: of.ExitCode, Reason: of.Reason,
		Image: &cri.ImageSpec{Image: of.Image, UserSpecifiedImage: of.Image}, ImageRef: of.ImageRef, ImageId: of.ImageRef,
		Labels: of.Labels, Annotations: of.Annotations, LogPath: of.LogPath,
	}
	st := c.status
	c.item = &cri.Container{
		Id: st.Id, PodSandboxId: c.sb.id(), Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef, ImageId: st.ImageId,
		State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
	}
	c.element = marshal(&cri.ListContainersResponse{Containers: []*cri.Container{c.item}})
	c.answer = marshal(&cri.ContainerStatusResponse{Status: st})
}

func wireTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// encoded is an object as an element of a list response and as the whole response
// to a status call. An update encodes the objects that it changes, so that
// listing thousands of them copies bytes.
type encoded struct{ element, answer []byte }

// marshal encodes a message of the runtime itself.
func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil { // only a string that is not UTF-8 causes it
		panic("simruntime: encode: " + err.Error())
	}
	return b
}

// setBody makes msg encode to body: the bytes of unknown fields are written
// without a change.
func setBody(msg proto.Message, body []byte) {
	if len(body) > 0 {
		msg.ProtoReflect().SetUnknown(body)
	}
}
