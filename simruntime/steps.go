package simruntime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eachSandbox calls do with each sandbox of a pod, or fails with the name of the operation.
func (tx *Txn) eachSandbox(op, uid string, do func(*sandbox)) error {
	if _, ok := tx.s.pod(uid); !ok {
		return fmt.Errorf("%s: pod %s: %w", op, uid, ErrNotFound)
	}
	for _, sb := range slices.Clone(tx.s.pods[uid].sandboxes) {
		if sb.gone == 0 {
			do(sb)
		}
	}
	return nil
}

// withSandbox calls do with a sandbox, or fails with the name of the operation.
func (tx *Txn) withSandbox(op, id string, do func(*sandbox)) error {
	sb := tx.s.sandboxes[id]
	if sb == nil || sb.gone != 0 {
		return fmt.Errorf("%s: sandbox %s: %w", op, id, ErrNotFound)
	}
	do(sb)
	return nil
}

func (tx *Txn) newestSandbox(uid string) (*sandbox, error) {
	if p := tx.s.pods[uid]; p != nil {
		if sb := p.sandboxes[len(p.sandboxes)-1]; sb.gone == 0 {
			return sb, nil
		}
	}
	return nil, fmt.Errorf("pod %s: %w", uid, ErrNotFound)
}

func (tx *Txn) container(id string) (*container, error) {
	c := tx.s.containers[id]
	if c == nil {
		return nil, fmt.Errorf("container %s: %w", id, ErrNotFound)
	}
	return c, nil
}

func (tx *Txn) nextAttempt(c *container) uint32 {
	next := c.meta.Attempt + 1
	for _, o := range tx.s.pods[c.sb.meta.GetUid()].allContainers() {
		if o.meta.Name == c.meta.Name {
			next = max(next, o.meta.Attempt+1)
		}
	}
	return next
}

// newSandbox adds a ready sandbox. If ips is nil, it gets the next free ones.
func (tx *Txn) newSandbox(meta *cri.PodSandboxMetadata, labels, annotations map[string]string, ips []string) *sandbox {
	if ips == nil {
		ips = tx.s.newIPs(tx.rt.opts.DualStack)
	}
	sb := &sandbox{id: newID(tx.rt.rng), meta: meta, ready: true, createdAt: tx.s.now(), ips: ips, labels: labels, annotations: annotations}
	tx.render(sb)
	tx.s.addSandbox(sb)
	tx.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, sb.id, sb)
	tx.emit(cri.ContainerEventType_CONTAINER_STARTED_EVENT, sb.id, sb)
	return sb
}

// newContainer adds a container that is created.
func (tx *Txn) newContainer(sb *sandbox, name, image string, attempt uint32) *container {
	meta := &cri.ContainerMetadata{Name: name, Attempt: attempt}
	c := &container{
		id: newID(tx.rt.rng), sb: sb, meta: meta,
		image: &cri.ImageSpec{Image: image, UserSpecifiedImage: image}, imageRef: imageRef(image),
		labels: kubeletLabels(sb.meta, name), annotations: containerAnnotations(meta, image), logPath: logPath(sb.meta, meta),
		state: cri.ContainerState_CONTAINER_CREATED, createdAt: tx.s.now(),
	}
	tx.render(c)
	tx.s.addContainer(c)
	tx.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, sb)
	return c
}

// successor adds and starts the next attempt of c.
func (tx *Txn) successor(c *container) *container {
	next := tx.newContainer(c.sb, c.meta.GetName(), c.image.GetImage(), tx.nextAttempt(c))
	tx.start(next)
	return next
}

// newContainerAs adds a container and brings it into the state of the spec.
func (tx *Txn) newContainerAs(sb *sandbox, spec ContainerSpec) *container {
	image := cmp.Or(spec.Image, "registry.example/"+sb.meta.GetNamespace()+"/"+spec.Name+":1.4.2")
	c := tx.newContainer(sb, spec.Name, image, spec.Attempt)
	if spec.State != Created {
		tx.start(c)
	}
	switch spec.State {
	case Exited:
		tx.exit(c, spec.ExitCode, spec.Reason)
	case Unknown:
		c.state = cri.ContainerState_CONTAINER_UNKNOWN
		tx.render(c)
	}
	return c
}

func (tx *Txn) start(c *container) {
	c.state = cri.ContainerState_CONTAINER_RUNNING
	c.startedAt = tx.s.now()
	tx.render(c)
	tx.emit(cri.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sb)
}

func (tx *Txn) exit(c *container, code int32, reason string) {
	c.exitCode, c.reason = code, cmp.Or(reason, ReasonError)
	if reason == "" && code == 0 {
		c.reason = ReasonCompleted
	}
	c.state = cri.ContainerState_CONTAINER_EXITED
	c.finishedAt = tx.s.now()
	tx.render(c)
	tx.emit(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sb)
}

// killed is the exit code of a process that SIGKILL ends.
const killed = 137

// kill ends a container that runs or whose state is unknown.
func (tx *Txn) kill(c *container) {
	if c.state == cri.ContainerState_CONTAINER_RUNNING || c.state == cri.ContainerState_CONTAINER_UNKNOWN {
		tx.exit(c, killed, "")
	}
}

func (tx *Txn) stop(sb *sandbox) {
	for _, c := range sb.containers {
		tx.kill(c)
	}
	if !sb.ready {
		return
	}
	sb.ready = false
	tx.render(sb)
	tx.emit(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, sb.id, sb)
}

func (tx *Txn) remove(c *container) {
	tx.kill(c)
	tx.s.dropContainer(c)
	tx.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, c.sb)
}

func (tx *Txn) removeSandbox(sb *sandbox) {
	tx.stop(sb)
	for _, c := range slices.Clone(sb.containers) {
		tx.remove(c)
	}
	if linger := tx.rt.opts.DeletedLinger; linger > 0 {
		sb.gone = time.Now().Add(linger).UnixNano()
		tx.s.lingering = append(tx.s.lingering, sb)
		if tx.rt.nextGone.Load() == 0 {
			tx.rt.nextGone.Store(sb.gone)
		}
	} else {
		tx.s.dropSandbox(sb)
	}
	tx.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, sb.id, sb)
}
