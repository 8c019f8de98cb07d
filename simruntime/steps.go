package simruntime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withPod calls do with the sandbox of a pod, or fails with the name of the operation.
func (tx *Txn) withPod(op, uid string, do func(*sandbox)) error {
	sb := tx.s.pods[uid]
	if sb == nil {
		return fmt.Errorf("%s: pod %s: %w", op, uid, ErrNotFound)
	}
	do(sb)
	return nil
}

func (tx *Txn) container(id string) (*container, error) {
	c := tx.s.containers[id]
	if c == nil {
		return nil, fmt.Errorf("container %s: %w", id, ErrNotFound)
	}
	return c, nil
}

// newSandbox adds a ready sandbox with the next addresses of the pod network.
func (tx *Txn) newSandbox(meta *cri.PodSandboxMetadata, labels, annotations map[string]string) *sandbox {
	tx.s.nextIP++
	network := &cri.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.88.%d.%d", tx.s.nextIP>>8&255, tx.s.nextIP&255)}
	if tx.rt.opts.DualStack {
		network.AdditionalIps = []*cri.PodIP{{Ip: fmt.Sprintf("fd00:88::%x", tx.s.nextIP)}}
	}
	sb := &sandbox{}
	sb.show(&cri.PodSandboxStatus{
		Id: newID(tx.rt.rng), Metadata: meta, CreatedAt: tx.s.now(), Network: network,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{
			Pid: cri.NamespaceMode_CONTAINER,
		}}},
		Labels: labels, Annotations: annotations,
	})
	tx.s.addSandbox(sb)
	tx.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, sb.id(), sb)
	tx.emit(cri.ContainerEventType_CONTAINER_STARTED_EVENT, sb.id(), sb)
	return sb
}

// newContainer adds a container and starts it.
func (tx *Txn) newContainer(sb *sandbox, name, image string, attempt uint32) *container {
	pod, meta, ref := sb.status.Metadata, &cri.ContainerMetadata{Name: name, Attempt: attempt}, imageRef(image)
	c := &container{sb: sb}
	c.show(&cri.ContainerStatus{
		Id: newID(tx.rt.rng), Metadata: meta, State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: tx.s.now(),
		Image: &cri.ImageSpec{Image: image, UserSpecifiedImage: image}, ImageRef: ref, ImageId: ref,
		Labels: kubeletLabels(pod, name), Annotations: containerAnnotations(meta, image), LogPath: logPath(pod, meta),
	})
	tx.s.addContainer(c)
	tx.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, c.id(), sb)
	tx.change(c, cri.ContainerEventType_CONTAINER_STARTED_EVENT, func(st *cri.ContainerStatus) {
		st.State, st.StartedAt = cri.ContainerState_CONTAINER_RUNNING, tx.s.now()
	})
	return c
}

// change shows a new status of a container and emits its event.
func (tx *Txn) change(c *container, event cri.ContainerEventType, change func(*cri.ContainerStatus)) {
	st := proto.CloneOf(c.status)
	change(st)
	c.show(st)
	tx.emit(event, c.id(), c.sb)
}

// successor adds the next attempt of c.
func (tx *Txn) successor(c *container) *container {
	next := uint32(0)
	for _, o := range c.sb.containers {
		if o.name() == c.name() {
			next = max(next, o.status.Metadata.Attempt+1)
		}
	}
	return tx.newContainer(c.sb, c.name(), c.status.Image.Image, next)
}

// newContainerAs adds a container in the state of the spec.
func (tx *Txn) newContainerAs(sb *sandbox, spec ContainerSpec) *container {
	image := cmp.Or(spec.Image, "registry.example/"+sb.status.Metadata.Namespace+"/"+spec.Name+":1.4.2")
	c := tx.newContainer(sb, spec.Name, image, spec.Attempt)
	if spec.State == Exited {
		tx.exit(c, spec.ExitCode, spec.Reason)
	}
	return c
}

func (tx *Txn) exit(c *container, code int32, reason string) {
	if reason == "" && code == 0 {
		reason = ReasonCompleted
	}
	tx.change(c, cri.ContainerEventType_CONTAINER_STOPPED_EVENT, func(st *cri.ContainerStatus) {
		st.State, st.FinishedAt = cri.ContainerState_CONTAINER_EXITED, tx.s.now()
		st.ExitCode, st.Reason = code, cmp.Or(reason, ReasonError)
	})
}

// killed is the exit code of a process that SIGKILL ends.
const killed = 137

// kill ends a container that runs.
func (tx *Txn) kill(c *container) {
	if !c.exited() {
		tx.exit(c, killed, "")
	}
}

func (tx *Txn) stop(sb *sandbox) {
	for _, c := range sb.containers {
		tx.kill(c)
	}
	if !sb.ready() {
		return
	}
	st := proto.CloneOf(sb.status)
	st.State, st.Network = cri.PodSandboxState_SANDBOX_NOTREADY, &cri.PodSandboxNetworkStatus{}
	sb.show(st)
	tx.emit(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, sb.id(), sb)
}

func (tx *Txn) prune(sb *sandbox) {
	seen := map[string]bool{}
	for _, c := range slices.Backward(slices.Clone(sb.containers)) {
		if !seen[c.name()] {
			seen[c.name()] = true
		} else if c.exited() {
			tx.remove(c)
		}
	}
}

func (tx *Txn) remove(c *container) {
	tx.kill(c)
	tx.s.dropContainer(c)
	tx.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, c.id(), c.sb)
}

func (tx *Txn) removeSandbox(sb *sandbox) {
	tx.stop(sb)
	for _, c := range slices.Clone(sb.containers) {
		tx.remove(c)
	}
	delete(tx.s.pods, sb.uid())
	if linger := tx.rt.opts.DeletedLinger; linger > 0 {
		sb.lingers = true
		time.AfterFunc(linger, func() { tx.rt.Update(func(tx *Txn) { tx.s.dropSandbox(sb) }) })
	} else {
		tx.s.dropSandbox(sb)
	}
	tx.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, sb.id(), sb)
}
