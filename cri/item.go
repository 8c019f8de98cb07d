package cri

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Labels and annotations of the kubelet; the first three are on every container and
// sandbox.
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"

	labelContainerName     = "io.kubernetes.container.name"
	annotationRestartCount = "io.kubernetes.container.restartCount"
)

// item is a listed sandbox or container and the data that joins it to its pod. It is
// immutable.
type item struct {
	*pleg.Container
	// podUID, podName and podNamespace come from the metadata of a sandbox and
	// from the kubelet's labels of a container. They may be empty.
	podUID       pleg.PodUID
	podName      string
	podNamespace string
	label        pleg.PodUID       // the pod in the kubelet's label
	labels       map[string]string // the pod's; nil for a container, unless known from its sandbox
	// skip is the reason why the item cannot be used as it is, or empty.
	skip string
	// labelled is true if the metadata is missing and the kubelet's labels contain the same data.
	labelled bool
	sandbox  bool // otherwise a container
	// bytes is the encoded size, annotations that of the annotations.
	bytes, annotations int
}

// The reasons for which a listed item is malformed, as in the log.
const (
	noID        = "no_id"
	noMetadata  = "no_metadata"
	noPodUID    = "no_pod_uid"
	duplicateID = "duplicate_id"
	noPod       = "no_pod"
	sharedUID   = "shared_pod_uid"
	notUTF8     = "not_utf8"
)

func sandboxItem(s *runtimeapi.PodSandbox) *item {
	meta := s.GetMetadata()
	it := &item{
		Container: &pleg.Container{
			ID:        pleg.ContainerID(s.GetId()),
			Name:      meta.GetName(),
			Attempt:   meta.GetAttempt(),
			State:     sandboxStates[s.GetState()],
			CreatedAt: wallTime(s.GetCreatedAt()),
		},
		podUID:       pleg.PodUID(meta.GetUid()),
		podName:      meta.GetName(),
		podNamespace: meta.GetNamespace(),
		label:        pleg.PodUID(s.GetLabels()[labelPodUID]),
		labels:       s.GetLabels(),
		sandbox:      true,
	}
	switch {
	case it.ID == "":
		it.skip = noID
	case meta == nil:
		it.skip = noMetadata
		it.podUID, it.podName, it.podNamespace = it.label, it.labels[labelPodName], it.labels[labelPodNamespace]
		it.Name, it.labelled = it.podName, it.podUID != ""
	case it.podUID == "":
		it.skip = noPodUID
	}
	return it
}

func containerItem(c *runtimeapi.Container) *item {
	meta, labels := c.GetMetadata(), c.GetLabels()
	it := &item{
		Container: &pleg.Container{
			ID:        pleg.ContainerID(c.GetId()),
			SandboxID: pleg.ContainerID(c.GetPodSandboxId()),
			Name:      meta.GetName(),
			Attempt:   meta.GetAttempt(),
			State:     containerStates[c.GetState()],
			CreatedAt: wallTime(c.GetCreatedAt()),
		},
		podUID:       pleg.PodUID(labels[labelPodUID]),
		label:        pleg.PodUID(labels[labelPodUID]),
		podName:      labels[labelPodName],
		podNamespace: labels[labelPodNamespace],
	}
	switch {
	case it.ID == "":
		it.skip = noID
	case meta == nil:
		it.skip = noMetadata
		it.Name = labels[labelContainerName]
		attempt, _ := strconv.ParseUint(c.GetAnnotations()[annotationRestartCount], 10, 32)
		it.Attempt, it.labelled = uint32(attempt), it.Name != ""
	}
	return it
}

func (it *item) key() podKey { return podKey{it.podUID, it.podNamespace, it.podName} }

// checkText marks an item with replaced text. Its own text cannot be used, since no call can ask
// for it.
func (it *item) checkText(replaced bool) {
	if replaced && it.skip != noID {
		it.skip, it.labelled = notUTF8, false
	}
}

// A state that is not in these tables is unknown.
var (
	sandboxStates = map[runtimeapi.PodSandboxState]pleg.State{
		runtimeapi.PodSandboxState_SANDBOX_READY:    pleg.StateRunning,
		runtimeapi.PodSandboxState_SANDBOX_NOTREADY: pleg.StateExited,
	}
	containerStates = map[runtimeapi.ContainerState]pleg.State{
		runtimeapi.ContainerState_CONTAINER_CREATED: pleg.StateCreated,
		runtimeapi.ContainerState_CONTAINER_RUNNING: pleg.StateRunning,
		runtimeapi.ContainerState_CONTAINER_EXITED:  pleg.StateExited,
	}
)

// wallTime converts nanoseconds since 1970. Runtimes write "not yet" as 0, and
// containerd sometimes as UnixNano of the zero time, which is negative.
func wallTime(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// skippedItem is a listed sandbox or container that is malformed or belongs to no pod. It is completed
// from elsewhere or left out.
type skippedItem struct {
	Sandbox       bool // otherwise a container
	ID, SandboxID pleg.ContainerID
	Name          string
	// Reason is no_id, no_metadata, no_pod_uid, duplicate_id, no_pod, shared_pod_uid or not_utf8,
	// as in the log.
	Reason string
}

func (it *item) skipped(reason string) skippedItem {
	return skippedItem{Sandbox: it.sandbox, ID: it.ID, SandboxID: it.SandboxID, Name: it.Name, Reason: reason}
}

// maxRemembered bounds the items whose warning is remembered: a runtime with new bad
// ids in each list must not fill the memory or the log.
const maxRemembered = 1000

// skipped counts the malformed items of a list, most of which are left out of it, and
// logs each once.
type skipped struct {
	log     *slog.Logger
	metrics *metrics
	warned  map[skippedItem]struct{}
}

func (s *skipped) add(ctx context.Context, it skippedItem) {
	s.metrics.malformed.Inc()
	if _, ok := s.warned[it]; ok || len(s.warned) > maxRemembered {
		return
	}
	s.warned[it] = struct{}{}
	if len(s.warned) > maxRemembered {
		s.log.WarnContext(ctx, "malformed item limit reached; counting without logging")
		return
	}
	s.log.WarnContext(ctx, "malformed item in list",
		"containerID", it.ID, "podSandboxID", it.SandboxID, "name", it.Name, "reason", it.Reason)
}
