package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

type faultFlags struct {
	texts []string
	pod   string

	faults []simruntime.Fault // set by validate
}

func (f *faultFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.texts, "fault", nil, "`FAULT` of a call, CALL/KIND, such as ContainerStatus/hang; may be repeated")
	flags.StringVar(&f.pod, "fault-pod", "",
		"with --fault, only calls about this `POD`, NAMESPACE/NAME; it is added if it does not\nexist, and nothing else happens to it")
}

func (f *faultFlags) validate() error {
	if f.pod != "" && len(f.texts) == 0 {
		return errors.New("--fault-pod needs --fault")
	}
	if namespace, name, ok := strings.Cut(f.pod, "/"); f.pod != "" && (!ok || namespace == "" || name == "") {
		return fmt.Errorf("--fault-pod %q: want NAMESPACE/NAME, such as shop/web-0", f.pod)
	}
	for _, text := range f.texts {
		fault, err := parseFault(text)
		if err != nil {
			return err
		}
		if f.pod != "" && !strings.Contains(text, "Status/") {
			return fmt.Errorf("--fault %q: --fault-pod needs a call about one pod, PodSandboxStatus or ContainerStatus", text)
		}
		f.faults = append(f.faults, fault)
	}
	return nil
}

// inject injects the faults. It returns the UIDs of the pods that must not change otherwise.
func (f *faultFlags) inject(runtime *simruntime.Runtime) (keep []pleg.PodUID) {
	var uid pleg.PodUID
	if f.pod != "" {
		uid = findOrAddPod(runtime, f.pod)
		keep = append(keep, uid)
	}
	for _, fault := range f.faults {
		fault.PodUID = uid
		runtime.Inject(fault)
	}
	return keep
}

func findOrAddPod(runtime *simruntime.Runtime, name string) pleg.PodUID {
	for _, pod := range runtime.Pods() {
		if pod.Namespace+"/"+pod.Name == name {
			return pod.UID
		}
	}
	namespace, short, _ := strings.Cut(name, "/")
	return runtime.AddPod(simruntime.PodSpec{
		Namespace: namespace, Name: short, Labels: map[string]string{"app": "web"},
		Containers: []pleg.ContainerStatus{{Name: "nginx"}},
	}).UID
}

var faultRPCs = []string{"ContainerStatus", "GetContainerEvents", "ListContainers", "ListPodSandbox", "PodSandboxStatus", "Version"}

var faultKinds = map[string]simruntime.Fault{
	"error":   {Code: codes.Internal},
	"hang":    {Hang: true},
	"slow":    {Latency: 2 * time.Second},
	"malform": {Malform: simruntime.NilMetadata},
}

func parseFault(text string) (simruntime.Fault, error) {
	call, kind, _ := strings.Cut(text, "/")
	if !slices.Contains(faultRPCs, call) {
		return simruntime.Fault{}, fmt.Errorf("--fault %q: call %q: want one of %s", text, call, strings.Join(faultRPCs, ", "))
	}
	f, ok := faultKinds[kind]
	if !ok {
		return f, fmt.Errorf("--fault %q: kind %q: want one of %s", text, kind, strings.Join(slices.Sorted(maps.Keys(faultKinds)), ", "))
	}
	f.RPC = call
	return f, nil
}
