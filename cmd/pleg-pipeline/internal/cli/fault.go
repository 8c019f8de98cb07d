package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// faultFlags are faults of a simulation that begin at given times, in all pods or in one.
type faultFlags struct {
	texts  []string
	pod    string
	podUID string // set by prepare
}

func (f *faultFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.texts, "fault", nil,
		"`FAULT` to inject, CALL/KIND@FROM or CALL/KIND@FROM-UNTIL, such as\nContainerStatus/hang@0s or ListContainers/error@10s-40s: times after the first\ncall of a client. KIND/once is for one call, KIND/random for each with a\nprobability of 1/2; may be repeated")
	flags.StringVar(&f.pod, "fault-pod", "",
		"with --fault, only calls about this `POD`, NAMESPACE/NAME; it is added if it does not\nexist, and is otherwise left alone. A container of it restarts when the fault begins")
}

func (f *faultFlags) validate() error {
	if f.pod != "" && len(f.texts) == 0 {
		return errors.New("--fault-pod needs --fault")
	}
	if namespace, name, ok := strings.Cut(f.pod, "/"); f.pod != "" && (!ok || namespace == "" || name == "") {
		return fmt.Errorf("--fault-pod %q: want NAMESPACE/NAME, such as shop/web-0", f.pod)
	}
	for _, text := range f.texts {
		if _, err := parseFault(text, ""); err != nil {
			return fmt.Errorf("--fault %w", err)
		}
		if f.pod != "" && !strings.Contains(text, "Status/") {
			return fmt.Errorf("--fault %q: --fault-pod needs a call about one pod, PodSandboxStatus or ContainerStatus", text)
		}
	}
	return nil
}

// prepare finds or adds the pod.
func (f *faultFlags) prepare(runtime *simruntime.Runtime) error {
	if f.pod != "" {
		var err error
		if f.podUID, err = findOrAddPod(runtime, f.pod); err != nil {
			return fmt.Errorf("--fault-pod: %w", err)
		}
	}
	return nil
}

func findOrAddPod(runtime *simruntime.Runtime, name string) (uid string, err error) {
	for _, pod := range runtime.Pods() {
		if pod.Namespace+"/"+pod.Name == name {
			return pod.UID, nil
		}
	}
	namespace, short, _ := strings.Cut(name, "/")
	pod, err := runtime.AddPod(simruntime.PodSpec{
		Namespace: namespace, Name: short, Labels: map[string]string{"app": "web"},
		Containers: []simruntime.ContainerSpec{{Name: "nginx"}},
	})
	return pod.UID, err
}

// keep returns the pods that must not change otherwise.
func (f *faultFlags) keep() []string {
	if f.podUID == "" {
		return nil
	}
	return []string{f.podUID}
}

func (f *faultFlags) String() string {
	text := "fault " + strings.Join(f.texts, ", ")
	if f.pod != "" {
		text += " in pod " + f.pod
	}
	return text
}

// play injects the faults at their times. A pod that never changes is not inspected, so
// a container restarts when a fault of the pod begins.
func (f *faultFlags) play(ctx context.Context, out console, runtime *simruntime.Runtime) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, text := range f.texts {
		faults, err := parseFault(text, f.podUID)
		if err != nil {
			return fmt.Errorf("--fault %w", err)
		}
		group.Go(func() error { return runtime.Play(ctx, faults...) })
		group.Go(func() error {
			from := faults[0].From
			if err := runtime.SleepAfterCall(ctx, from); err != nil {
				return err
			}
			out.say(ctx, "the fault %s begins", text)
			if from == 0 || f.podUID == "" {
				return nil
			}
			return restartContainer(runtime, f.podUID)
		})
	}
	return group.Wait()
}

// restartContainer restarts the newest container of a pod that runs.
func restartContainer(runtime *simruntime.Runtime, podUID string) error {
	pod, _ := runtime.Pod(podUID)
	for _, c := range pod.Containers {
		if c.State == simruntime.Running {
			_, err := runtime.RestartContainer(c.ID)
			return err
		}
	}
	return fmt.Errorf("restart a container of pod %s: none runs", podUID)
}

// faultRPCs are the RPCs of each call that can fail. A list has two forms, and a fault is in both.
var faultRPCs = map[string][]string{
	"Version":            {"Version"},
	"ListPodSandbox":     {"ListPodSandbox", "StreamPodSandboxes"},
	"ListContainers":     {"ListContainers", "StreamContainers"},
	"PodSandboxStatus":   {"PodSandboxStatus"},
	"ContainerStatus":    {"ContainerStatus"},
	"GetContainerEvents": {"GetContainerEvents"},
}

// faultKinds are what can happen to a call.
var faultKinds = map[string]simruntime.Fault{
	"error":   {Code: codes.Internal},
	"hang":    {Hang: true},
	"slow":    {Latency: simruntime.Latency{P50: 2 * time.Second}},
	"malform": {Malform: simruntime.NilStatus}, // of a list: NilMetadata
}

var faultForm = regexp.MustCompile(`^(\w+)/(\w+)(?:/(once|random))?@([^-]+)(?:-(.+))?$`)

// parseFault parses one value of --fault.
func parseFault(text, podUID string) (faults []simruntime.Fault, err error) {
	words := faultForm.FindStringSubmatch(text)
	if words == nil {
		return nil, fmt.Errorf("%q: want CALL/KIND@FROM or CALL/KIND@FROM-UNTIL, such as ContainerStatus/hang@0s, and /once or /random after KIND", text)
	}
	rpcs := faultRPCs[words[1]]
	if rpcs == nil {
		return nil, fmt.Errorf("%q: call %q: want one of %s", text, words[1], strings.Join(slices.Sorted(maps.Keys(faultRPCs)), ", "))
	}
	f, ok := faultKinds[words[2]]
	if !ok || words[1] == "Version" && f.Malform != 0 {
		return nil, fmt.Errorf("%q: kind %q: want one of %s; Version has no malform", text, words[2], strings.Join(slices.Sorted(maps.Keys(faultKinds)), ", "))
	}
	if f.Malform != 0 && len(rpcs) > 1 {
		f.Malform = simruntime.NilMetadata
	}
	switch words[3] {
	case "once":
		f.Times = 1
	case "random":
		f.Probability = 0.5
	}
	if f.From, err = time.ParseDuration(words[4]); err != nil {
		return nil, fmt.Errorf("%q: %q is not a time such as 0s or 1m30s", text, words[4])
	}
	if words[5] != "" {
		if f.Until, err = time.ParseDuration(words[5]); err != nil || f.Until <= f.From {
			return nil, fmt.Errorf("%q: %q is not a time after %v", text, words[5], f.From)
		}
	}
	f.PodUID = podUID
	for _, f.RPC = range rpcs {
		faults = append(faults, f)
	}
	return faults, nil
}
