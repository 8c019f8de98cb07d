package simruntime

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Txn changes the runtime's state inside [Runtime.Update]. It must not be used
// after the function given to Update has returned, nor by two goroutines.
// A method that returns an error has changed nothing.
type Txn struct {
	rt *Runtime
	s  *state
	// rendered are the objects to encode when the update ends: once each,
	// whatever the number of steps they took.
	rendered []object
}

// object is a sandbox or a container.
type object interface {
	render()
	encode()
}

func (tx *Txn) render(o object) {
	o.render()
	tx.rendered = append(tx.rendered, o)
}

// Update runs fn with exclusive access: no call of a client sees the state
// between its steps. Events go out in the order of the steps. fn must not call
// methods of the Runtime.
func (rt *Runtime) Update(fn func(*Txn)) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.purge()
	tx := &Txn{rt: rt, s: &rt.state}
	fn(tx)
	for _, o := range tx.rendered {
		o.encode()
	}
	rt.state.generation++
}

// AddPod adds a pod with its sandbox and containers. It returns ErrExists if
// the UID is taken.
func (tx *Txn) AddPod(spec PodSpec) (Pod, error) {
	if spec.UID == "" {
		spec.UID = newUID(tx.rt.rng)
	}
	if _, ok := tx.s.pod(spec.UID); ok {
		return Pod{}, fmt.Errorf("add pod %s: %w", spec.UID, ErrExists)
	}
	spec.Namespace = cmp.Or(spec.Namespace, "default")
	if spec.Name == "" {
		spec.Name = "web-" + suffix(tx.rt.rng, 9) + "-" + suffix(tx.rt.rng, 5) // of a Deployment
	}
	meta := &cri.PodSandboxMetadata{Name: spec.Name, Uid: spec.UID, Namespace: spec.Namespace}
	labels := kubeletLabels(meta, "")
	maps.Copy(labels, spec.Labels)
	annotations := map[string]string{"kubernetes.io/config.seen": "2026-01-02T03:04:05Z", "kubernetes.io/config.source": "api"}
	maps.Copy(annotations, spec.Annotations)
	sb := tx.newSandbox(meta, labels, annotations, spec.IPs)
	for i, cs := range spec.Containers {
		if cs.Name == "" {
			cs.Name = "app"
			if i > 0 {
				cs.Name += "-" + strconv.Itoa(i+1)
			}
		}
		tx.newContainerAs(sb, cs)
	}
	p, _ := tx.s.pod(spec.UID)
	return p, nil
}

// AddSandbox adds the next sandbox attempt to a pod, as the kubelet does after
// the sandbox died. It returns ErrState while a sandbox is ready.
func (tx *Txn) AddSandbox(uid string) (Sandbox, error) {
	old, err := tx.newestSandbox(uid)
	if err != nil {
		return Sandbox{}, fmt.Errorf("add sandbox: %w", err)
	}
	if old.ready {
		return Sandbox{}, fmt.Errorf("add sandbox: pod %s: sandbox %s is ready: %w", uid, old.id, ErrState)
	}
	meta := &cri.PodSandboxMetadata{Name: old.meta.Name, Uid: uid, Namespace: old.meta.Namespace, Attempt: old.meta.Attempt + 1}
	return tx.newSandbox(meta, old.labels, old.annotations, nil).truth(), nil
}

// AddContainer adds a container to the newest sandbox of a pod.
func (tx *Txn) AddContainer(uid string, spec ContainerSpec) (Container, error) {
	sb, err := tx.newestSandbox(uid)
	if err != nil {
		return Container{}, fmt.Errorf("add container: %w", err)
	}
	if !sb.ready {
		return Container{}, fmt.Errorf("add container: sandbox %s is not ready: %w", sb.id, ErrState)
	}
	spec.Name = cmp.Or(spec.Name, "app")
	return tx.newContainerAs(sb, spec).truth(), nil
}

// StartContainer starts a container that is created.
func (tx *Txn) StartContainer(id string) error {
	c, err := tx.container(id)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if c.state != cri.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("start: container %s is %v: %w", id, fromCRI(c.state), ErrState)
	}
	if !c.sb.ready {
		return fmt.Errorf("start: container %s: sandbox %s is not ready: %w", id, c.sb.id, ErrState)
	}
	tx.start(c)
	return nil
}

// ExitContainer ends a container that runs, or one whose state is unknown.
// An empty reason follows from the code.
func (tx *Txn) ExitContainer(id string, code int32, reason string) error {
	c, err := tx.container(id)
	if err != nil {
		return fmt.Errorf("exit: %w", err)
	}
	if c.state == cri.ContainerState_CONTAINER_EXITED || c.state == cri.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("exit: container %s is %v: %w", id, fromCRI(c.state), ErrState)
	}
	tx.exit(c, code, reason)
	return nil
}

// RestartContainer makes and starts the next attempt of a container in the
// same sandbox and returns it. A container that still runs exits with code 1
// first. The old one stays, exited, until it is removed.
func (tx *Txn) RestartContainer(id string) (Container, error) {
	c, err := tx.container(id)
	if err != nil {
		return Container{}, fmt.Errorf("restart: %w", err)
	}
	if !c.sb.ready {
		return Container{}, fmt.Errorf("restart: sandbox %s is not ready: %w", c.sb.id, ErrState)
	}
	if c.state != cri.ContainerState_CONTAINER_EXITED {
		tx.exit(c, 1, "")
	}
	return tx.successor(c).truth(), nil
}

// RemoveContainer removes a container, and kills it first if it runs.
func (tx *Txn) RemoveContainer(id string) error {
	c, err := tx.container(id)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	tx.remove(c)
	return nil
}

// PruneDead removes the exited containers of a pod that have a successor of
// the same name, as the kubelet's garbage collection does.
func (tx *Txn) PruneDead(uid string) error {
	p := tx.s.pods[uid]
	if p == nil {
		return fmt.Errorf("prune: pod %s: %w", uid, ErrNotFound)
	}
	seen := map[string]bool{}
	for _, sb := range slices.Backward(slices.Clone(p.sandboxes)) {
		for _, c := range slices.Backward(slices.Clone(sb.containers)) {
			if name := c.meta.GetName(); !seen[name] {
				seen[name] = true
			} else if c.state == cri.ContainerState_CONTAINER_EXITED {
				tx.remove(c)
			}
		}
	}
	return nil
}

// StopSandbox kills the containers of a sandbox (exit code 137) and makes it
// NOTREADY. Stopping a stopped sandbox does nothing.
func (tx *Txn) StopSandbox(id string) error { return tx.withSandbox("stop", id, tx.stop) }

// RemoveSandbox stops a sandbox, removes its containers and then itself.
func (tx *Txn) RemoveSandbox(id string) error { return tx.withSandbox("remove", id, tx.removeSandbox) }

// StopPod stops all sandboxes of a pod.
func (tx *Txn) StopPod(uid string) error { return tx.eachSandbox("stop", uid, tx.stop) }

// RemovePod stops and removes all sandboxes of a pod and their containers.
func (tx *Txn) RemovePod(uid string) error { return tx.eachSandbox("remove", uid, tx.removeSandbox) }

// Pod returns one pod as the transaction has changed it so far.
func (tx *Txn) Pod(uid string) (Pod, bool) { return tx.s.pod(uid) }
