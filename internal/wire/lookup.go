package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// FromQuery returns the message of a query that is well-formed.
func FromQuery(q lookup.Query) *plegv1.LookupRequest {
	m := &plegv1.LookupRequest{Wait: durationpb.New(q.Wait)}
	switch {
	case q.Container != "":
		m.Of = &plegv1.LookupRequest_ContainerId{ContainerId: Text(string(q.Container))}
	case q.PID != 0:
		m.Of = &plegv1.LookupRequest_Pid{Pid: uint32(q.PID)}
	default:
		m.Of = &plegv1.LookupRequest_CgroupId{CgroupId: q.Cgroup}
	}
	return m
}

// ToQuery returns the query of a message.
func ToQuery(m *plegv1.LookupRequest) lookup.Query {
	return lookup.Query{
		Container: pleg.ContainerID(m.GetContainerId()), PID: int(m.GetPid()), Cgroup: m.GetCgroupId(),
		Wait: m.GetWait().AsDuration(),
	}
}

// FromContainer returns the message of an answer.
func FromContainer(c lookup.Container) *plegv1.LookupResponse {
	return &plegv1.LookupResponse{
		Container: fromContainer(&c.ContainerStatus), Sandbox: c.Sandbox,
		PodUid: Text(string(c.PodUID)), PodName: Text(c.PodName), PodNamespace: Text(c.PodNamespace),
		PodLabels: textMap(c.PodLabels), PodAnnotations: textMap(c.PodAnnotations),
		RemovedAt: FromTime(c.RemovedAt), CgroupPath: Text(c.CgroupPath),
	}
}

// ToContainer returns the answer of a message.
func ToContainer(m *plegv1.LookupResponse) lookup.Container {
	return lookup.Container{
		ContainerStatus: *toContainer(m.GetContainer()), Sandbox: m.GetSandbox(),
		PodUID: pleg.PodUID(m.GetPodUid()), PodName: m.GetPodName(), PodNamespace: m.GetPodNamespace(),
		PodLabels: m.GetPodLabels(), PodAnnotations: m.GetPodAnnotations(),
		RemovedAt: ToTime(m.GetRemovedAt()), CgroupPath: m.GetCgroupPath(),
	}
}
