package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// FormatVersion is the version of the files that this package writes and reads.
const FormatVersion = 1

// Schedule is what happens to a simulated runtime. Times count from the moment
// at which it begins to be played.
type Schedule struct {
	// Seed determines ids, and the latencies that the profile draws.
	Seed uint64 `json:"seed"`
	// Latency is the name of a profile of simruntime. If empty, "zero".
	Latency string `json:"latency,omitempty"`
	// Pods are there from the start, and run.
	Pods []Pod `json:"pods"`
	// Steps are the changes, in the order of their times.
	Steps []Step `json:"steps"`
	// Faults are the calls that are spoiled.
	Faults []Fault `json:"faults"`
}

// Pod is a pod that is there from the start.
type Pod struct {
	Name       string   `json:"name"`       // With its namespace: "shop/cart-0".
	Containers []string `json:"containers"` // Their names.
}

// Step is one change.
type Step struct {
	At Time `json:"at"`
	// Do is what is done.
	Do simruntime.ActionKind `json:"do"`
	// Pod is the pod it is done to, with its namespace.
	Pod string `json:"pod"`
	// Containers are the names of those of a pod that is added.
	Containers []string `json:"containers,omitempty"`
	// Container is the name of the one that exits, or is restarted.
	Container string `json:"container,omitempty"`
	// ExitCode and Reason are those of one that exits. The reason follows from
	// the code if it is empty.
	ExitCode int32  `json:"exitCode,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Time is a time since the start of the schedule, or a duration. In a file it is
// text, such as "1.25s".
type Time time.Duration

// String returns the text of the time.
func (t Time) String() string { return time.Duration(t).String() }

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no time, such as 1.25s", text)
	}
	*t = Time(d)
	return nil
}

// End returns the latest time in the schedule, at which all faults are lifted.
func (s *Schedule) End() time.Duration {
	var end Time
	for _, step := range s.Steps {
		end = max(end, step.At)
	}
	for _, f := range s.Faults {
		end = max(end, f.From, f.Until)
	}
	return time.Duration(end)
}

// Validate returns what is wrong with the schedule, naming the place.
func (s *Schedule) Validate() error {
	if _, err := simruntime.NewProfile(s.profile()); err != nil {
		return err
	}
	names := make(map[string]bool)
	for i, p := range s.Pods {
		if names[p.Name] {
			return fmt.Errorf("pod %d: %s is there already", i, p.Name)
		}
		names[p.Name] = true
		if err := errors.Join(checkPod(p.Name), checkContainers(p.Containers)); err != nil {
			return fmt.Errorf("pod %d: %w", i, err)
		}
	}
	var last Time
	for i, step := range s.Steps {
		if err := step.validate(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if step.At < last {
			return fmt.Errorf("step %d: at %v, before the step ahead of it", i, step.At)
		}
		last = step.At
	}
	for i, f := range s.Faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("fault %d: %w", i, err)
		}
	}
	return nil
}

func (s *Schedule) profile() string {
	if s.Latency == "" {
		return simruntime.ProfileZero
	}
	return s.Latency
}

func (s Step) validate() error {
	if s.At < 0 {
		return fmt.Errorf("at %v: times count from 0", s.At)
	}
	if err := checkPod(s.Pod); err != nil {
		return err
	}
	switch s.Do {
	case simruntime.ActionAdd:
		return checkContainers(s.Containers)
	case simruntime.ActionDelete, simruntime.ActionRemove:
		return nil
	case simruntime.ActionCrash, simruntime.ActionOOM, simruntime.ActionComplete, simruntime.ActionRestart:
		if s.Container == "" {
			return fmt.Errorf("%s needs a container", s.Do)
		}
		return nil
	}
	return fmt.Errorf("nothing known is done by %q", s.Do)
}

func checkPod(name string) error {
	namespace, rest, _ := strings.Cut(name, "/")
	if namespace == "" || rest == "" || strings.Contains(rest, "/") {
		return fmt.Errorf("pod %q: want NAMESPACE/NAME", name)
	}
	return nil
}

func checkContainers(names []string) error {
	seen := make(map[string]bool)
	for _, name := range names {
		if name == "" || seen[name] {
			return fmt.Errorf("containers %q: want names that differ", names)
		}
		seen[name] = true
	}
	return nil
}
