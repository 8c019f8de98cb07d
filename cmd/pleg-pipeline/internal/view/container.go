package view

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Container is one container of a pod.
type Container struct {
	ID      pleg.ContainerID `json:"id"`
	Name    string           `json:"name"`
	Attempt uint32           `json:"attempt"`
	State   string           `json:"state"`
	// ExitCode, Reason and Message are set if the container has exited.
	ExitCode   *int32     `json:"exitCode,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	Image      string     `json:"image,omitempty"`
	ImageRef   string     `json:"imageRef,omitempty"`
	LogPath    string     `json:"logPath,omitempty"`
	CreatedAt  *time.Time `json:"createdAt,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// Sandbox is one sandbox of a pod.
type Sandbox struct {
	ID          pleg.ContainerID  `json:"id"`
	Attempt     uint32            `json:"attempt"`
	State       string            `json:"state"`
	IPs         []string          `json:"ips,omitempty"`
	HostNetwork bool              `json:"hostNetwork,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	CreatedAt   *time.Time        `json:"createdAt,omitempty"`
}

func newContainer(c *pleg.ContainerStatus) Container {
	v := Container{
		ID: c.ID, Name: c.Name, Attempt: c.Attempt, State: c.State.String(),
		Image: c.Image, ImageRef: c.ImageRef, LogPath: c.LogPath,
		CreatedAt: at(c.CreatedAt), StartedAt: at(c.StartedAt), FinishedAt: at(c.FinishedAt),
	}
	if c.State == pleg.StateExited {
		v.ExitCode, v.Reason, v.Message = &c.ExitCode, c.Reason, c.Message
	}
	return v
}

func newSandbox(s *pleg.SandboxStatus) Sandbox {
	state := NotReady
	if s.Ready {
		state = Ready
	}
	return Sandbox{
		ID: s.ID, Attempt: s.Attempt, State: state, IPs: s.IPs, HostNetwork: s.HostNetwork,
		Labels: s.Labels, CreatedAt: at(s.CreatedAt),
	}
}
