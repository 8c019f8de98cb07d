package simruntime

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

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
	// from the name), the attempt, annotations besides those of the kubelet, and, if the state is
	// [pleg.StateExited], the exit code and the reason (if empty, it follows from the code). Any other
	// state becomes [pleg.StateRunning], and the runtime determines all other fields.
	Containers []pleg.ContainerStatus
}

// AddPod adds a pod with its sandbox and containers. It panics if the UID is taken.
func (s *State) AddPod(spec PodSpec) *pleg.PodStatus {
	if spec.UID == "" {
		spec.UID = newUID(s.rng)
	}
	if s.pods[spec.UID] != nil {
		panic("simruntime: pod " + spec.UID + " exists")
	}
	spec.Namespace = cmp.Or(spec.Namespace, "default")
	if spec.Name == "" {
		spec.Name = "web-" + suffix(s.rng, 9) + "-" + suffix(s.rng, 5) // of a Deployment
	}
	sb := s.newSandbox(spec)
	for i, cs := range spec.Containers {
		if cs.Name == "" && i > 0 {
			cs.Name = "app-" + strconv.Itoa(i+1)
		}
		s.newContainer(sb, cs)
	}
	return sb.pod()
}

// AddContainer adds a container as [PodSpec] describes it to a pod.
func (s *State) AddContainer(uid pleg.PodUID, spec pleg.ContainerStatus) (*pleg.ContainerStatus, error) {
	sb := s.pods[uid]
	if sb == nil {
		return nil, fmt.Errorf("add container: pod %s: %w", uid, ErrNotFound)
	}
	if !sb.of.Ready {
		return nil, fmt.Errorf("add container: sandbox %s is not ready: %w", sb.id(), ErrState)
	}
	return s.newContainer(sb, spec).of, nil
}

// ExitContainer ends a container that runs. An empty reason follows from the code.
func (s *State) ExitContainer(id pleg.ContainerID, code int32, reason string) error {
	c, err := s.container("exit", id)
	if err != nil {
		return err
	}
	if c.exited() {
		return fmt.Errorf("exit: container %s has exited: %w", id, ErrState)
	}
	s.exit(c, code, reason)
	return nil
}

// RestartContainer makes and starts the next attempt of a container in the
// same sandbox and returns it. A container that still runs exits with code 1
// first. The old one stays, exited, until it is removed.
func (s *State) RestartContainer(id pleg.ContainerID) (*pleg.ContainerStatus, error) {
	c, err := s.container("restart", id)
	if err != nil {
		return nil, err
	}
	if !c.sb.of.Ready {
		return nil, fmt.Errorf("restart: sandbox %s is not ready: %w", c.sb.id(), ErrState)
	}
	if !c.exited() {
		s.exit(c, 1, "")
	}
	return s.successor(c).of, nil
}

// RemoveContainer removes a container, and kills it first if it runs.
func (s *State) RemoveContainer(id pleg.ContainerID) error {
	c, err := s.container("remove", id)
	if err == nil {
		s.remove(c)
	}
	return err
}

// PruneDead removes the exited containers of a pod with a successor of
// the same name, as the kubelet's garbage collection does.
func (s *State) PruneDead(uid pleg.PodUID) error { return s.withPod("prune", uid, s.prune) }

// StopPod kills the containers of a pod (exit code 137) and makes its sandbox
// NOTREADY. Stopping a stopped pod does nothing.
func (s *State) StopPod(uid pleg.PodUID) error { return s.withPod("stop", uid, s.stop) }

// RemovePod stops a pod and removes its containers and then its sandbox.
func (s *State) RemovePod(uid pleg.PodUID) error { return s.withPod("remove", uid, s.removeSandbox) }

// withPod calls do with the sandbox of a pod, or returns an error that names the operation.
func (s *State) withPod(op string, uid pleg.PodUID, do func(*sandbox)) error {
	sb := s.pods[uid]
	if sb == nil {
		return fmt.Errorf("%s: pod %s: %w", op, uid, ErrNotFound)
	}
	do(sb)
	return nil
}

func (s *State) container(op string, id pleg.ContainerID) (*container, error) {
	if c, ok := s.byID[string(id)].(*container); ok {
		return c, nil
	}
	return nil, fmt.Errorf("%s: container %s: %w", op, id, ErrNotFound)
}

// newSandbox adds a ready sandbox with the next addresses of the pod network.
func (s *State) newSandbox(spec PodSpec) *sandbox {
	s.nextIP++
	ips := []string{fmt.Sprintf("10.88.%d.%d", s.nextIP>>8&255, s.nextIP&255)}
	if s.rt.opts.DualStack {
		ips = append(ips, fmt.Sprintf("fd00:88::%x", s.nextIP))
	}
	meta := &cri.PodSandboxMetadata{Name: spec.Name, Uid: string(spec.UID), Namespace: spec.Namespace}
	labels, annotations := kubeletLabels(meta, ""), map[string]string{"kubernetes.io/config.seen": "2026-01-02T03:04:05Z", "kubernetes.io/config.source": "api"}
	maps.Copy(labels, spec.Labels)
	maps.Copy(annotations, spec.Annotations)
	sb := &sandbox{meta: meta}
	sb.show(&pleg.SandboxStatus{ID: newID(s.rng), Ready: true, CreatedAt: s.now(), IPs: ips, Labels: labels, Annotations: annotations})
	s.pods[sb.uid()], s.byID[sb.id()] = sb, sb
	s.sandboxes = append(s.sandboxes, sb)
	s.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, sb.id(), sb)
	s.emit(cri.ContainerEventType_CONTAINER_STARTED_EVENT, sb.id(), sb)
	return sb
}

// newContainer adds a container, starts it, and ends it if the spec says so.
func (s *State) newContainer(sb *sandbox, spec pleg.ContainerStatus) *container {
	name := cmp.Or(spec.Name, "app")
	image := cmp.Or(spec.Image, "registry.example/"+sb.meta.Namespace+"/"+name+":1.4.2")
	annotations := containerAnnotations(name, spec.Attempt, image)
	for key, value := range spec.Annotations {
		annotations[key] = cmp.Or(annotations[key], value)
	}
	c := &container{sb: sb}
	c.show(&pleg.ContainerStatus{
		ID: newID(s.rng), Name: name, Attempt: spec.Attempt, State: pleg.StateCreated, CreatedAt: s.now(),
		Image: image, ImageRef: imageRef(image), LogPath: logPath(sb.meta, name, spec.Attempt),
		Labels: kubeletLabels(sb.meta, name), Annotations: annotations,
	})
	sb.containers, s.byID[c.id()] = append(sb.containers, c), c
	s.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, c.id(), sb)
	s.change(c, cri.ContainerEventType_CONTAINER_STARTED_EVENT, func(of *pleg.ContainerStatus) {
		of.State, of.StartedAt = pleg.StateRunning, s.now()
	})
	if spec.State == pleg.StateExited {
		s.exit(c, spec.ExitCode, spec.Reason)
	}
	return c
}

// change shows a new status of a container and emits its event.
func (s *State) change(c *container, event cri.ContainerEventType, change func(*pleg.ContainerStatus)) {
	next := *c.of
	change(&next)
	c.show(&next)
	s.emit(event, c.id(), c.sb)
}

// successor adds the next attempt of c.
func (s *State) successor(c *container) *container {
	next := pleg.ContainerStatus{Name: c.of.Name, Image: c.of.Image, Annotations: c.of.Annotations}
	for _, o := range c.sb.containers {
		if o.of.Name == c.of.Name {
			next.Attempt = max(next.Attempt, o.of.Attempt+1)
		}
	}
	return s.newContainer(c.sb, next)
}

func (s *State) exit(c *container, code int32, reason string) {
	if reason == "" && code == 0 {
		reason = "Completed"
	}
	s.change(c, cri.ContainerEventType_CONTAINER_STOPPED_EVENT, func(of *pleg.ContainerStatus) {
		of.State, of.FinishedAt = pleg.StateExited, s.now()
		of.ExitCode, of.Reason = code, cmp.Or(reason, "Error")
	})
}

// killed is the exit code of a process that SIGKILL ends.
const killed = 137

// kill ends a container that runs.
func (s *State) kill(c *container) {
	if !c.exited() {
		s.exit(c, killed, "")
	}
}

func (s *State) stop(sb *sandbox) {
	for _, c := range sb.containers {
		s.kill(c)
	}
	if !sb.of.Ready {
		return
	}
	of := *sb.of
	of.Ready, of.IPs = false, nil
	sb.show(&of)
	s.emit(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, sb.id(), sb)
}

func (s *State) prune(sb *sandbox) {
	seen := map[string]bool{}
	for _, c := range slices.Backward(slices.Clone(sb.containers)) {
		if !seen[c.of.Name] {
			seen[c.of.Name] = true
		} else if c.exited() {
			s.remove(c)
		}
	}
}

func (s *State) remove(c *container) {
	s.kill(c)
	delete(s.byID, c.id())
	c.sb.containers = without(c.sb.containers, c)
	s.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, c.id(), c.sb)
}

func (s *State) removeSandbox(sb *sandbox) {
	s.stop(sb)
	for _, c := range slices.Clone(sb.containers) {
		s.remove(c)
	}
	delete(s.pods, sb.uid())
	if linger := s.rt.opts.DeletedLinger; linger > 0 {
		sb.lingers = true
		time.AfterFunc(linger, func() { s.rt.Update(func(s *State) { s.drop(sb) }) })
	} else {
		s.drop(sb)
	}
	s.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, sb.id(), sb)
}

func (s *State) drop(sb *sandbox) {
	delete(s.byID, sb.id())
	s.sandboxes = without(s.sandboxes, sb)
}

func without[T comparable](in []T, v T) []T {
	i := slices.Index(in, v)
	return slices.Delete(in, i, i+1)
}
