package simruntime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// withPod calls do with the sandbox of a pod, or fails with the name of the operation.
func (tx *Txn) withPod(op string, uid pleg.PodUID, do func(*sandbox)) error {
	sb := tx.s.pods[uid]
	if sb == nil {
		return fmt.Errorf("%s: pod %s: %w", op, uid, ErrNotFound)
	}
	do(sb)
	return nil
}

func (tx *Txn) container(id pleg.ContainerID) (*container, error) {
	c := tx.s.containers[id]
	if c == nil {
		return nil, fmt.Errorf("container %s: %w", id, ErrNotFound)
	}
	return c, nil
}

// newSandbox adds a ready sandbox with the next addresses of the pod network.
func (tx *Txn) newSandbox(meta *cri.PodSandboxMetadata, labels, annotations map[string]string) *sandbox {
	tx.s.nextIP++
	ips := []string{fmt.Sprintf("10.88.%d.%d", tx.s.nextIP>>8&255, tx.s.nextIP&255)}
	if tx.rt.opts.DualStack {
		ips = append(ips, fmt.Sprintf("fd00:88::%x", tx.s.nextIP))
	}
	sb := &sandbox{meta: meta}
	sb.show(&pleg.SandboxStatus{
		ID: newID(tx.rt.rng), Ready: true, CreatedAt: tx.s.now(), IPs: ips, Labels: labels, Annotations: annotations,
	})
	tx.s.addSandbox(sb)
	tx.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, sb.id(), sb)
	tx.emit(cri.ContainerEventType_CONTAINER_STARTED_EVENT, sb.id(), sb)
	return sb
}

// newContainer adds a container and starts it.
func (tx *Txn) newContainer(sb *sandbox, name, image string, attempt uint32) *container {
	c := &container{sb: sb}
	c.show(&pleg.ContainerStatus{
		ID: newID(tx.rt.rng), Name: name, Attempt: attempt, State: pleg.StateCreated, CreatedAt: tx.s.now(),
		Image: image, ImageRef: imageRef(image), LogPath: logPath(sb.meta, name, attempt),
		Labels: kubeletLabels(sb.meta, name), Annotations: containerAnnotations(name, attempt, image),
	})
	tx.s.addContainer(c)
	tx.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, c.id(), sb)
	tx.change(c, cri.ContainerEventType_CONTAINER_STARTED_EVENT, func(of *pleg.ContainerStatus) {
		of.State, of.StartedAt = pleg.StateRunning, tx.s.now()
	})
	return c
}

// change shows a new status of a container and emits its event.
func (tx *Txn) change(c *container, event cri.ContainerEventType, change func(*pleg.ContainerStatus)) {
	next := *c.of
	change(&next)
	c.show(&next)
	tx.emit(event, c.id(), c.sb)
}

// successor adds the next attempt of c.
func (tx *Txn) successor(c *container) *container {
	next := uint32(0)
	for _, o := range c.sb.containers {
		if o.of.Name == c.of.Name {
			next = max(next, o.of.Attempt+1)
		}
	}
	return tx.newContainer(c.sb, c.of.Name, c.of.Image, next)
}

// newContainerAs adds a container in the state of the spec.
func (tx *Txn) newContainerAs(sb *sandbox, spec pleg.ContainerStatus) *container {
	image := cmp.Or(spec.Image, "registry.example/"+sb.meta.Namespace+"/"+spec.Name+":1.4.2")
	c := tx.newContainer(sb, spec.Name, image, spec.Attempt)
	if spec.State == pleg.StateExited {
		tx.exit(c, spec.ExitCode, spec.Reason)
	}
	return c
}

func (tx *Txn) exit(c *container, code int32, reason string) {
	if reason == "" && code == 0 {
		reason = "Completed"
	}
	tx.change(c, cri.ContainerEventType_CONTAINER_STOPPED_EVENT, func(of *pleg.ContainerStatus) {
		of.State, of.FinishedAt = pleg.StateExited, tx.s.now()
		of.ExitCode, of.Reason = code, cmp.Or(reason, "Error")
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
	if !sb.of.Ready {
		return
	}
	of := *sb.of
	of.Ready, of.IPs = false, nil
	sb.show(&of)
	tx.emit(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, sb.id(), sb)
}

func (tx *Txn) prune(sb *sandbox) {
	seen := map[string]bool{}
	for _, c := range slices.Backward(slices.Clone(sb.containers)) {
		if !seen[c.of.Name] {
			seen[c.of.Name] = true
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
