package main

import (
	"fmt"
	"go/format"
	"strings"
)

const (
	generic  = "pkg/kubelet/pleg/generic.go"
	features = "pkg/features/kube_features.go"
)

// The gate as it would be sent, and as it is tested.
const (
	gateOff = "Default: false, PreRelease: featuregate.Alpha}, // add the gate to the next release\n"
	gateOn  = "Default: true, PreRelease: featuregate.Beta},\n"
)

// edits are the change: each old text must be in its file once. The lists that
// hack/update-featuregates.sh generates are left out.
var edits = []struct{ file, old, new string }{
	{features, `	// owner: @tallclair
	//
	// Enables relisting individual pods on-demand.
`, `	// Enables inspecting several changed pods at the same time in a relist.
	PLEGConcurrentInspections featuregate.Feature = "PLEGConcurrentInspections"

	// owner: @tallclair
	//
	// Enables relisting individual pods on-demand.
`},
	{features, `	PLEGOnDemandRelist: {
`, `	PLEGConcurrentInspections: {
		{Version: version.MustParse("1.37"), ` + gateOff + `	},

	PLEGOnDemandRelist: {
`},
	{features, `	PLEGOnDemandRelist: {},
`, `	PLEGConcurrentInspections: {},

	PLEGOnDemandRelist: {},
`},
	{generic, `	"k8s.io/klog/v2"
`, `	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
`},
	{generic, `	for pid := range g.podRecords {
		g.reconcilePodRecord(ctx, pid)
	}

	// Update the cache timestamp.`, `	if utilfeature.DefaultFeatureGate.Enabled(features.PLEGConcurrentInspections) {
		g.reconcilePodRecords(ctx)
	} else {
		for pid := range g.podRecords {
			g.reconcilePodRecord(ctx, pid)
		}
	}

	// Update the cache timestamp.`},
	{generic, `// reconcilePodRecord compares the old & current pod record and checks for event-worthy state
`, `// maxInspections is the number of changed pods that are inspected at the same time.
const maxInspections = 4

// podChange is what a relist found of a pod.
type podChange struct {
	pid    types.UID
	pod    *kubecontainer.Pod
	events []*PodLifecycleEvent
}

// reconcilePodRecords reconciles all pod records. The pods that need it are inspected
// concurrently; records and events belong to one goroutine at a time.
func (g *GenericPLEG) reconcilePodRecords(ctx context.Context) {
	var changes []podChange
	for pid := range g.podRecords {
		if change, ok := g.comparePodRecord(ctx, pid); ok {
			changes = append(changes, change)
		}
	}
	var inspections errgroup.Group
	inspections.SetLimit(maxInspections)
	var mu sync.Mutex
	for _, change := range changes {
		inspections.Go(func() error {
			status, err := g.updateCache(ctx, change.pod, change.pid)
			mu.Lock()
			defer mu.Unlock()
			g.finishReconcile(ctx, change, status, err)
			return nil
		})
	}
	_ = inspections.Wait() // the errors are those of pods, and have been handled
}

// reconcilePodRecord compares the old & current pod record and checks for event-worthy state
`},
	{generic, `func (g *GenericPLEG) reconcilePodRecord(ctx context.Context, pid types.UID) {
	logger := klog.FromContext(ctx)
`, `func (g *GenericPLEG) reconcilePodRecord(ctx context.Context, pid types.UID) {
	if change, ok := g.comparePodRecord(ctx, pid); ok {
		status, err := g.updateCache(ctx, change.pod, pid)
		g.finishReconcile(ctx, change, status, err)
	}
}

// comparePodRecord returns false if the pod needs no inspection.
func (g *GenericPLEG) comparePodRecord(ctx context.Context, pid types.UID) (podChange, bool) {
	logger := klog.FromContext(ctx)
`},
	{generic, `	if len(events) == 0 && !reinspect {
		// Nothing else needed for this pod.
		return
	}

`, `	return podChange{pid, pod, events}, len(events) > 0 || reinspect
}

// finishReconcile delivers the events of a pod that has been inspected.
func (g *GenericPLEG) finishReconcile(ctx context.Context, change podChange, status *kubecontainer.PodStatus, err error) {
	logger := klog.FromContext(ctx)
	pid, pod, events := change.pid, change.pod, change.events
`},
	{generic, `	// TODO: If many pods changed during the same relist period,
	// inspecting the pod and getting the PodStatus to update the cache
	// serially may take a while. We should be aware of this and
	// parallelize if needed.
	status, err := g.updateCache(ctx, pod, pid)
	if err != nil {
		// Rely`, `	if err != nil {
		// Rely`},
}

// change makes the edits to the texts of files, by name.
func change(texts map[string]string) error {
	for _, e := range edits {
		if n := strings.Count(texts[e.file], e.old); n != 1 {
			return fmt.Errorf("%s: this text is there %d times, want once; is it another version?\n%s", e.file, n, e.old)
		}
		texts[e.file] = strings.Replace(texts[e.file], e.old, e.new, 1)
	}
	for file, text := range texts {
		formatted, err := format.Source([]byte(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		texts[file] = string(formatted)
	}
	return nil
}
