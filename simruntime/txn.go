package simruntime

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// PodSpec describes a pod to be added. The zero value is a pod with a
// realistic name in namespace "default", one sandbox that is ready, and no
// container.
type PodSpec struct {
	UID         pleg.PodUID       // If empty, one is drawn.
	Namespace   string            // If empty, "default".
	Name        string            // If empty, one is drawn.
	Labels      map[string]string // Besides those that the kubelet sets.
	Annotations map[string]string // Besides those that the kubelet sets.
	// Containers give the name (if empty, "app", "app-2" and so on), the image (if empty, one derived
	// from the name), the attempt, and, if the state is [pleg.StateExited], the exit code and the
	// reason (if empty, it follows from the code). Any other state becomes [pleg.StateRunning], and
	// the runtime determines all else.
	Containers []pleg.ContainerStatus
}

// Txn changes the runtime's state inside [Runtime.Update]. It must not be used
// after the function given to Update has returned, nor by two goroutines.
// A method that returns an error has changed nothing.
type Txn struct {
	rt *Runtime
	s  *state
}

// Update runs fn with exclusive access: no call of a client sees the state
// between its steps. Events go out in the order of the steps. fn must not call
// methods of the Runtime.
func (rt *Runtime) Update(fn func(*Txn)) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	fn(&Txn{rt: rt, s: &rt.state})
}

// AddPod adds a pod with its sandbox and containers. The UID must
// not be taken.
func (tx *Txn) AddPod(spec PodSpec) (*pleg.PodStatus, error) {
	if spec.UID == "" {
		spec.UID = newUID(tx.rt.rng)
	}
	if tx.s.pods[spec.UID] != nil {
		return nil, fmt.Errorf("add pod %s: it exists", spec.UID)
	}
	spec.Namespace = cmp.Or(spec.Namespace, "default")
	if spec.Name == "" {
		spec.Name = "web-" + suffix(tx.rt.rng, 9) + "-" + suffix(tx.rt.rng, 5) // of a Deployment
	}
	meta := &cri.PodSandboxMetadata{Name: spec.Name, Uid: string(spec.UID), Namespace: spec.Namespace}
	labels := kubeletLabels(meta, "")
	maps.Copy(labels, spec.Labels)
	annotations := map[string]string{"kubernetes.io/config.seen": "2026-01-02T03:04:05Z", "kubernetes.io/config.source": "api"}
	maps.Copy(annotations, spec.Annotations)
	sb := tx.newSandbox(meta, labels, annotations)
	for i, cs := range spec.Containers {
		if cs.Name == "" {
			cs.Name = "app"
			if i > 0 {
				cs.Name += "-" + strconv.Itoa(i+1)
			}
		}
		tx.newContainerAs(sb, cs)
	}
	return sb.pod(), nil
}

// AddContainer adds a container as [PodSpec] describes it to a pod.
func (tx *Txn) AddContainer(uid pleg.PodUID, spec pleg.ContainerStatus) (*pleg.ContainerStatus, error) {
	sb := tx.s.pods[uid]
	if sb == nil {
		return nil, fmt.Errorf("add container: pod %s: %w", uid, ErrNotFound)
	}
	if !sb.of.Ready {
		return nil, fmt.Errorf("add container: sandbox %s is not ready: %w", sb.id(), ErrState)
	}
	spec.Name = cmp.Or(spec.Name, "app")
	return tx.newContainerAs(sb, spec).of, nil
}

// ExitContainer ends a container that runs. An empty reason follows from the code.
func (tx *Txn) ExitContainer(id pleg.ContainerID, code int32, reason string) error {
	c, err := tx.container(id)
	if err != nil {
		return fmt.Errorf("exit: %w", err)
	}
	if c.exited() {
		return fmt.Errorf("exit: container %s has exited: %w", id, ErrState)
	}
	tx.exit(c, code, reason)
	return nil
}

// RestartContainer makes and starts the next attempt of a container in the
// same sandbox and returns it. A container that still runs exits with code 1
// first. The old one stays, exited, until it is removed.
func (tx *Txn) RestartContainer(id pleg.ContainerID) (*pleg.ContainerStatus, error) {
	c, err := tx.container(id)
	if err != nil {
		return nil, fmt.Errorf("restart: %w", err)
	}
	if !c.sb.of.Ready {
		return nil, fmt.Errorf("restart: sandbox %s is not ready: %w", c.sb.id(), ErrState)
	}
	if !c.exited() {
		tx.exit(c, 1, "")
	}
	return tx.successor(c).of, nil
}

// RemoveContainer removes a container, and kills it first if it runs.
func (tx *Txn) RemoveContainer(id pleg.ContainerID) error {
	c, err := tx.container(id)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	tx.remove(c)
	return nil
}

// PruneDead removes the exited containers of a pod with a successor of
// the same name, as the kubelet's garbage collection does.
func (tx *Txn) PruneDead(uid pleg.PodUID) error {
	return tx.withPod("prune", uid, tx.prune)
}

// StopPod kills the containers of a pod (exit code 137) and makes its sandbox
// NOTREADY. Stopping a stopped pod does nothing.
func (tx *Txn) StopPod(uid pleg.PodUID) error { return tx.withPod("stop", uid, tx.stop) }

// RemovePod stops a pod and removes its containers and then its sandbox.
func (tx *Txn) RemovePod(uid pleg.PodUID) error { return tx.withPod("remove", uid, tx.removeSandbox) }

// Pod returns one pod as the transaction has changed it so far, or nil.
func (tx *Txn) Pod(uid pleg.PodUID) *pleg.PodStatus { return tx.s.pod(uid) }
