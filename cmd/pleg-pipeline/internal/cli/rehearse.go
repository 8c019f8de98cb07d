package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/rehearse"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// rehearsal is a set of faults that begin at given times, in all pods or in one.
type rehearsal struct {
	texts  []string
	pod    string
	podUID string // set by prepare
}

func (r *rehearsal) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&r.texts, "fault", nil,
		"`FAULT` to rehearse, CALL/KIND@FROM or CALL/KIND@FROM-UNTIL, such as\nContainerStatus/hang@0s or ListContainers/error@10s-40s: times after the first\ncall of a client. KIND/once is for one call, KIND/random for each with a\nprobability of 1/2; may be repeated")
	flags.StringVar(&r.pod, "fault-pod", "",
		"with --fault, only calls about this `POD`, NAMESPACE/NAME; it is added if it does not\nexist, and is otherwise left alone. A container of it restarts when the fault begins")
}

func (r *rehearsal) validate() error {
	if r.pod != "" && len(r.texts) == 0 {
		return errors.New("--fault-pod needs --fault")
	}
	if namespace, name, ok := strings.Cut(r.pod, "/"); r.pod != "" && (!ok || namespace == "" || name == "") {
		return fmt.Errorf("--fault-pod %q: want NAMESPACE/NAME, such as shop/web-0", r.pod)
	}
	for _, text := range r.texts {
		if _, err := rehearse.Parse(text, ""); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		if r.pod != "" && !strings.Contains(text, "Status/") {
			return fmt.Errorf("--fault %q: --fault-pod needs a call about one pod, PodSandboxStatus or ContainerStatus", text)
		}
	}
	return nil
}

// prepare finds or adds the pod.
func (r *rehearsal) prepare(runtime *simruntime.Runtime) error {
	if r.pod != "" {
		var err error
		if r.podUID, err = findOrAddPod(runtime, r.pod); err != nil {
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
func (r *rehearsal) keep() []string {
	if r.podUID == "" {
		return nil
	}
	return []string{r.podUID}
}

func (r *rehearsal) String() string {
	text := "fault " + strings.Join(r.texts, ", ")
	if r.pod != "" {
		text += " in pod " + r.pod
	}
	return text
}

// play injects the faults at their times. A pod that never changes is not inspected, so
// a container restarts when a fault of the pod begins.
func (r *rehearsal) play(ctx context.Context, out console, runtime *simruntime.Runtime) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, text := range r.texts {
		faults, err := rehearse.Parse(text, r.podUID)
		if err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		group.Go(func() error { return runtime.Play(ctx, faults...) })
		group.Go(func() error {
			from := faults[0].From
			if err := runtime.SleepAfterCall(ctx, from); err != nil {
				return err
			}
			out.say(ctx, "the fault %s begins", text)
			if from == 0 || r.podUID == "" {
				return nil
			}
			return restartContainer(runtime, r.podUID)
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
