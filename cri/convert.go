package cri

import (
	"cmp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// newSandboxStatus converts an answer. The attempt comes from the list, because the
// metadata of an answer may be missing.
func newSandboxStatus(s *runtimeapi.PodSandboxStatus, listed *pleg.Container) *pleg.SandboxStatus {
	hostNetwork := s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	st := &pleg.SandboxStatus{
		ID:          listed.ID,
		Attempt:     listed.Attempt,
		Ready:       s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   wallTime(s.GetCreatedAt()),
		HostNetwork: hostNetwork,
		Labels:      s.GetLabels(),
		Annotations: s.GetAnnotations(),
	}
	if !hostNetwork {
		st.IPs = addresses(s.GetNetwork())
	}
	return st
}

func addresses(network *runtimeapi.PodSandboxNetworkStatus) []string {
	var ips []string
	if ip := network.GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, additional := range network.GetAdditionalIps() {
		if ip := additional.GetIp(); ip != "" {
			ips = append(ips, ip)
		}
	}
	return ips
}

func newContainerStatus(s *runtimeapi.ContainerStatus, listed *pleg.Container) *pleg.ContainerStatus {
	return &pleg.ContainerStatus{
		ID:          listed.ID,
		Name:        listed.Name,
		Attempt:     listed.Attempt,
		State:       containerState(s.GetState()),
		CreatedAt:   wallTime(s.GetCreatedAt()),
		StartedAt:   wallTime(s.GetStartedAt()),
		FinishedAt:  wallTime(s.GetFinishedAt()),
		ExitCode:    s.GetExitCode(),
		Reason:      s.GetReason(),
		Message:     s.GetMessage(),
		Image:       cmp.Or(s.GetImage().GetUserSpecifiedImage(), s.GetImage().GetImage()),
		ImageRef:    s.GetImageRef(),
		Labels:      s.GetLabels(),
		Annotations: s.GetAnnotations(),
	}
}

// podIPs returns the addresses of the newest sandbox that is ready.
func podIPs(sandboxes []*pleg.SandboxStatus) []string {
	var newest *pleg.SandboxStatus
	for _, s := range sandboxes {
		if s.Ready && (newest == nil || s.CreatedAt.After(newest.CreatedAt)) {
			newest = s
		}
	}
	if newest == nil {
		return nil
	}
	return newest.IPs
}
