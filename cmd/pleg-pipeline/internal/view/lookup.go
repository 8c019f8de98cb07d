package view

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Lookup is the answer to the question which container and pod something belongs to.
type Lookup struct {
	Container
	// Sandbox is true if it is a pod sandbox.
	Sandbox        bool              `json:"sandbox"`
	PodUID         pleg.PodUID       `json:"podUID"`
	PodName        string            `json:"podName"`
	PodNamespace   string            `json:"podNamespace"`
	PodLabels      map[string]string `json:"podLabels,omitempty"`
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
	// RemovedAt is missing while the container exists.
	RemovedAt  *time.Time `json:"removedAt,omitempty"`
	CgroupPath string     `json:"cgroupPath,omitempty"`
	// Finding is the problem of its pod; nil if there is none.
	Finding *verdict.Finding `json:"finding,omitempty"`
}

// NewLookup returns the view of an answer. now is the status of the daemon that gave it.
func NewLookup(c lookup.Container, now pleg.Status) Lookup {
	v := newContainer(&c.ContainerStatus)
	if c.Sandbox || !c.RemovedAt.IsZero() && c.FinishedAt.IsZero() && c.ExitCode == 0 {
		v.ExitCode = nil // nobody reported one
	}
	l := Lookup{
		Container: v, Sandbox: c.Sandbox,
		PodUID: c.PodUID, PodName: c.PodName, PodNamespace: c.PodNamespace, PodLabels: c.PodLabels, PodAnnotations: c.PodAnnotations,
		RemovedAt: at(c.RemovedAt), CgroupPath: c.CgroupPath,
	}
	if f, ok := verdict.Pods(now)[c.PodUID]; ok {
		l.Finding = &f
	}
	return l
}

// Print writes the answer for people, a line for each thing that is known.
func (l Lookup) Print(w io.Writer) error {
	state := l.State
	if l.ExitCode != nil {
		state = strings.TrimSpace(fmt.Sprintf("%s with code %d %s", state, *l.ExitCode, l.Reason))
	}
	if l.RemovedAt != nil {
		state += ", removed " + l.RemovedAt.Local().Format(time.DateTime)
	}
	kind := "container"
	if l.Sandbox {
		kind = "sandbox"
	}
	finding := ""
	if l.Finding != nil {
		finding = strings.ToUpper(string(l.Finding.Severity)) + ": " + l.Finding.Summary
	}
	var text strings.Builder
	for _, line := range [][2]string{
		{"pod", l.PodNamespace + "/" + l.PodName},
		{"uid", string(l.PodUID)},
		{kind, l.Name},
		{"id", string(l.ID)},
		{"attempt", fmt.Sprint(l.Attempt)},
		{"state", state},
		{"image", l.Image},
		{"digest", l.ImageRef},
		{"log", l.LogPath},
		{"cgroup", l.CgroupPath},
		{"finding", finding},
	} {
		if line[1] != "" {
			fmt.Fprintf(&text, "%-10s %s\n", line[0], Printable(line[1]))
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}
