package doctor

import (
	"cmp"
	"fmt"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// Skipped is a listed sandbox or container that is malformed, or that belongs to no pod.
type Skipped struct {
	// Method is the call whose answer has it.
	Method string `json:"method"`
	// Pod is the pod of its sandbox; empty if it is not known.
	Pod       string `json:"pod,omitempty"`
	Name      string `json:"name,omitempty"`
	ID        string `json:"id,omitempty"`
	SandboxID string `json:"sandboxID,omitempty"`
	// Reason is the label of the metric pleg_malformed_items_total.
	Reason string `json:"reason"`
}

func newSkipped(s cri.Skipped, all []item) Skipped {
	pod := ""
	for _, i := range all {
		if i.ID == string(s.SandboxID) || i.ID == string(s.ID) {
			pod = i.Pod
		}
	}
	method := "ListContainers"
	if s.Sandbox {
		method = "ListPodSandbox"
	}
	return Skipped{Method: method, Pod: pod, Name: s.Name, ID: string(s.ID), SandboxID: string(s.SandboxID), Reason: s.Reason}
}

// malformedReasons are the reasons why no call can ask for the item, or a kubelet cannot read the
// list. The others are of pods that no kubelet made.
var malformedReasons = map[string]string{
	"no_id":       "has no id",
	"no_metadata": "has no metadata",
	"not_utf8":    "has text that is not UTF-8, so that a kubelet cannot read the list",
}

// String names the item and says what is wrong.
func (s Skipped) String() string {
	kind := "container"
	if s.Method == "ListPodSandbox" {
		kind = "sandbox"
	}
	text := fmt.Sprintf("%s %s (%s)", kind, cmp.Or(s.Name, "without a name"), cmp.Or(view.ShortID(s.ID), "no id"))
	if s.Pod != "" {
		text += " of " + s.Pod
	}
	return text + " " + cmp.Or(malformedReasons[s.Reason], "is skipped: "+s.Reason)
}

// malformed finds listed items that are malformed.
func (e *examination) malformed(s *signs) {
	for _, method := range []string{"ListPodSandbox", "ListContainers"} {
		var bad []Skipped
		for _, k := range e.report.Skipped {
			if k.Method == method && malformedReasons[k.Reason] != "" {
				bad = append(bad, k)
			}
		}
		if len(bad) > 0 {
			s.add(true, "%s has malformed items: %v%s", method, bad[0], andMore(len(bad)-1))
		}
	}
}
