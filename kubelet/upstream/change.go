package main

import (
	"fmt"
	"go/format"
	"strings"
)

const (
	generic  = "pkg/kubelet/pleg/generic.go"
	tests    = "pkg/kubelet/pleg/generic_test.go"
	features = "pkg/features/kube_features.go"
)

// The gate as it would be sent, as a kubelet of this release knows it, and as it is tested.
const (
	gateSent   = `"1.38"), Default: false, PreRelease: featuregate.Alpha`
	gateOff    = `"1.37"), Default: false, PreRelease: featuregate.Alpha`
	gateTested = `"1.37"), Default: true, PreRelease: featuregate.Beta`
)

// edits are the change: each old text must be in its file once. The lists that
// hack/update-featuregates.sh generates are left out.
var edits = []struct{ file, old, new string }{
	{features, `	// owner: @tallclair
	//
	// Enables relisting individual pods on-demand.
`, `	// owner: @TBD
	//
	// Enables inspecting several changed pods at the same time in a relist.
	PLEGConcurrentInspections featuregate.Feature = "PLEGConcurrentInspections"

	// owner: @tallclair
	//
	// Enables relisting individual pods on-demand.
`},
	{features, `	PLEGOnDemandRelist: {
`, `	PLEGConcurrentInspections: {
		{Version: version.MustParse(` + gateSent + `},
	},

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
`, `// maxInspections is the number of pods that a relist inspects at the same time. containerd on two
// cores answers about four status calls at once. With more, each call only takes longer.
const maxInspections = 4

// podChange is what a relist found of a pod.
type podChange struct {
	pid    types.UID
	pod    *kubecontainer.Pod
	events []*PodLifecycleEvent
}

// reconcilePodRecords does for all pods what reconcilePodRecord does for a single pod. It inspects
// up to maxInspections pods concurrently. relistLock must be held.
func (g *GenericPLEG) reconcilePodRecords(ctx context.Context) {
	var changes []podChange
	for pid := range g.podRecords {
		if change, ok := g.comparePodRecord(ctx, pid); ok {
			changes = append(changes, change)
		}
	}

	// finishLock guards podRecords, and keeps the events of a pod together.
	var finishLock sync.Mutex
	var inspections errgroup.Group
	inspections.SetLimit(maxInspections)
	for _, change := range changes {
		inspections.Go(func() error {
			status, err := g.updateCache(ctx, change.pod, change.pid)
			finishLock.Lock()
			defer finishLock.Unlock()
			g.finishReconcile(ctx, change, status, err)
			return nil // an error concerns one pod, and finishReconcile handles it
		})
	}
	_ = inspections.Wait()
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

// comparePodRecord compares the old & current pod record, and returns whether the pod needs an
// inspection.
func (g *GenericPLEG) comparePodRecord(ctx context.Context, pid types.UID) (podChange, bool) {
	logger := klog.FromContext(ctx)
`},
	{generic, `	if len(events) == 0 && !reinspect {
		// Nothing else needed for this pod.
		return
	}

`, `	return podChange{pid: pid, pod: pod, events: events}, len(events) > 0 || reinspect
}

// finishReconcile updates the record and delivers the events of a pod that has been inspected. It
// makes the next relist inspect the pod again if the inspection failed.
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
	{tests, `	"sort"
	"strings"
	"testing"
`, `	"sort"
	"strings"
	"sync"
	"testing"
`},
	{tests, `func TestRemoveCacheEntry(`, unitTest + `func TestRemoveCacheEntry(`},
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

// setGate replaces the gate as it would be sent.
func setGate(texts map[string]string, gate string) {
	texts[features] = strings.Replace(texts[features], gateSent, gate, 1)
}
