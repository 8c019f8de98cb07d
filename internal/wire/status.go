package wire

import (
	"slices"
	"strings"
	"unicode/utf8"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var states = map[pleg.State]plegv1.State{
	pleg.StateUnknown: plegv1.State_STATE_UNKNOWN,
	pleg.StateCreated: plegv1.State_STATE_CREATED,
	pleg.StateRunning: plegv1.State_STATE_RUNNING,
	pleg.StateExited:  plegv1.State_STATE_EXITED,
}

// toState returns [pleg.StateUnknown] for a number of a newer version.
func toState(number plegv1.State) pleg.State {
	for state, n := range states {
		if n == number {
			return state
		}
	}
	return pleg.StateUnknown
}

// FromStatus returns the message of a status, or nil for nil.
func FromStatus(s *pleg.PodStatus) *plegv1.PodStatus {
	if s == nil {
		return nil
	}
	m := &plegv1.PodStatus{
		Uid:        Text(string(s.UID)),
		Name:       Text(s.Name),
		Namespace:  Text(s.Namespace),
		Ips:        texts(s.IPs),
		ObservedAt: FromTime(s.ObservedAt),
	}
	for _, c := range s.Containers {
		m.Containers = append(m.Containers, fromContainer(c))
	}
	for _, sandbox := range s.Sandboxes {
		m.Sandboxes = append(m.Sandboxes, fromSandbox(sandbox))
	}
	return m
}

func fromContainer(c *pleg.ContainerStatus) *plegv1.ContainerStatus {
	return &plegv1.ContainerStatus{
		Id:          Text(string(c.ID)),
		Name:        Text(c.Name),
		Attempt:     c.Attempt,
		State:       states[c.State],
		CreatedAt:   FromTime(c.CreatedAt),
		StartedAt:   FromTime(c.StartedAt),
		FinishedAt:  FromTime(c.FinishedAt),
		ExitCode:    c.ExitCode,
		Reason:      Text(c.Reason),
		Message:     Text(c.Message),
		Image:       Text(c.Image),
		ImageRef:    Text(c.ImageRef),
		LogPath:     Text(c.LogPath),
		Labels:      textMap(c.Labels),
		Annotations: textMap(c.Annotations),
	}
}

func fromSandbox(s *pleg.SandboxStatus) *plegv1.SandboxStatus {
	return &plegv1.SandboxStatus{
		Id:          Text(string(s.ID)),
		Attempt:     s.Attempt,
		Ready:       s.Ready,
		CreatedAt:   FromTime(s.CreatedAt),
		Ips:         texts(s.IPs),
		HostNetwork: s.HostNetwork,
		Labels:      textMap(s.Labels),
		Annotations: textMap(s.Annotations),
	}
}

// ToStatus returns the status of a message, or nil for nil.
func ToStatus(m *plegv1.PodStatus) *pleg.PodStatus {
	if m == nil {
		return nil
	}
	s := &pleg.PodStatus{
		UID:        pleg.PodUID(m.GetUid()),
		Name:       m.GetName(),
		Namespace:  m.GetNamespace(),
		IPs:        m.GetIps(),
		ObservedAt: ToTime(m.GetObservedAt()),
	}
	for _, c := range m.GetContainers() {
		s.Containers = append(s.Containers, toContainer(c))
	}
	for _, sandbox := range m.GetSandboxes() {
		s.Sandboxes = append(s.Sandboxes, toSandbox(sandbox))
	}
	return s
}

func toContainer(m *plegv1.ContainerStatus) *pleg.ContainerStatus {
	return &pleg.ContainerStatus{
		ID:          pleg.ContainerID(m.GetId()),
		Name:        m.GetName(),
		Attempt:     m.GetAttempt(),
		State:       toState(m.GetState()),
		CreatedAt:   ToTime(m.GetCreatedAt()),
		StartedAt:   ToTime(m.GetStartedAt()),
		FinishedAt:  ToTime(m.GetFinishedAt()),
		ExitCode:    m.GetExitCode(),
		Reason:      m.GetReason(),
		Message:     m.GetMessage(),
		Image:       m.GetImage(),
		ImageRef:    m.GetImageRef(),
		LogPath:     m.GetLogPath(),
		Labels:      m.GetLabels(),
		Annotations: m.GetAnnotations(),
	}
}

func toSandbox(m *plegv1.SandboxStatus) *pleg.SandboxStatus {
	return &pleg.SandboxStatus{
		ID:          pleg.ContainerID(m.GetId()),
		Attempt:     m.GetAttempt(),
		Ready:       m.GetReady(),
		CreatedAt:   ToTime(m.GetCreatedAt()),
		IPs:         m.GetIps(),
		HostNetwork: m.GetHostNetwork(),
		Labels:      m.GetLabels(),
		Annotations: m.GetAnnotations(),
	}
}

// Text replaces bytes that are not UTF-8, which a message cannot carry: otherwise one bad
// string from an embedder's runtime would end every stream.
func Text(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

func texts(in []string) []string {
	if !slices.ContainsFunc(in, func(s string) bool { return !utf8.ValidString(s) }) {
		return in
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = Text(s)
	}
	return out
}

func textMap(in map[string]string) map[string]string {
	for k, v := range in {
		if utf8.ValidString(k) && utf8.ValidString(v) {
			continue
		}
		out := make(map[string]string, len(in))
		for k, v := range in {
			out[Text(k)] = Text(v)
		}
		return out
	}
	return in
}
