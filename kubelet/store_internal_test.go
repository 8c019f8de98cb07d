package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// written is a pod cache that keeps its writes.
type written struct {
	kubecontainer.Cache
	calls []string
}

func second(at time.Time) string { return fmt.Sprint(at.Sub(time.Unix(0, 0)).Seconds()) }

func (w *written) Set(uid types.UID, status *kubecontainer.PodStatus, err error, at time.Time) bool {
	w.calls = append(w.calls, fmt.Sprintf("set %s %s", uid, second(at)))
	if err != nil {
		w.calls = append(w.calls, fmt.Sprintf("with %v beside %v", err, status))
	}
	return true
}

func (w *written) Delete(uid types.UID) { w.calls = append(w.calls, "delete "+string(uid)) }
func (w *written) UpdateTime(at time.Time) {
	w.calls = append(w.calls, "all "+second(at))
}

func (w *written) SetObservedTime(uid types.UID, at time.Time) {
	w.calls = append(w.calls, string(uid)+" "+second(at))
}

// TestStoreWrites compares the writes of each step. The time of all pods is that of the oldest pod, and a pod that
// is newer gets its own.
func TestStoreWrites(t *testing.T) {
	cache := &written{}
	s := newStore(cache)
	at := func(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }
	set := func(uid pleg.PodUID, listed float64) {
		s.Set(uid, &pleg.PodStatus{Native: inspected{&kubecontainer.PodStatus{}, at(listed)}}, nil, at(listed))
	}
	measured := func() uint64 {
		n, err := testutil.GetHistogramMetricCount(metrics.PLEGRelistDuration.ObserverMetric)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ended := measured()
	for n, step := range []struct {
		do    func()
		want  string // sorted, except what is set and deleted
		lists uint64 // that have ended
	}{
		{func() { set("a", 1) }, "set a 1", 0},
		{func() { set("b", 1) }, "set b 1", 0},
		{func() { s.Observe(at(1), nil) }, "all 1", 1},
		{func() { s.Observe(at(2), []pleg.PodUID{"a"}) }, "b 2", 0},
		{func() { s.Observe(at(3), []pleg.PodUID{"a"}) }, "b 3", 0},
		{func() { s.Touch("b", at(2)) }, "", 0},       // it is newer
		{func() { s.Touch("a", at(0.5)) }, "", 0},     // so is this one
		{func() { set("a", 2) }, "set a 2, all 2", 1}, // from the list before
		{func() { set("a", 3) }, "set a 3, all 3", 1},
		{func() { s.Observe(at(4), []pleg.PodUID{"a"}) }, "b 4", 0},
		{func() { s.Observe(at(5), []pleg.PodUID{"a", "b", "c", "d", "e", "f", "g"}) }, "", 0}, // the oldest is correct up to 3
		{func() { s.Touch("b", at(5)) }, "b 5", 0},
		{func() { set("a", 5) }, "set a 5, all 4", 1},
		{func() { set("c", 5); set("d", 5); set("e", 5); set("f", 5) }, "set c 5, set d 5, set e 5, set f 5", 0},
		{func() { s.Delete("g", at(5)) }, "delete g, g 5, all 5", 1},
		{func() { s.Observe(at(6), []pleg.PodUID{"a", "g"}) }, "b 6, c 6, d 6, e 6, f 6", 0},
		{func() { s.Delete("a", at(6)) }, "delete a, a 6", 0},
		{func() { s.Observe(at(7), []pleg.PodUID{"g"}) }, "a 7, b 7, c 7, d 7, e 7, f 7", 0},
		{func() { set("g", 7) }, "set g 7, all 7", 2},
		{func() { s.Observe(at(8), nil) }, "all 8", 1}, // nobody needs a time of its own
		{func() { s.Set("g", nil, errors.New("broken"), at(8)) }, "set g 8, with broken beside <nil>", 0},
		{func() { s.Touch("new", at(8)) }, "new 8", 0},
		{func() { s.Observe(at(9), []pleg.PodUID{"b"}) }, "a 9, c 9, d 9, e 9, f 9, g 9", 0}, // g has come back
		{func() { set("b", 9) }, "set b 9, all 9", 1},
		{func() { s.Observe(at(606), []pleg.PodUID{"g"}) }, "a 606, b 606, c 606, d 606, e 606, f 606", 0},
		{func() { s.Observe(at(606.5), []pleg.PodUID{"g"}) }, "b 606.5, c 606.5, d 606.5, e 606.5, f 606.5", 0}, // a is gone for over ten minutes
	} {
		cache.calls = nil
		step.do()
		if !strings.HasPrefix(step.want, "set") && !strings.HasPrefix(step.want, "delete") {
			slices.Sort(cache.calls)
		}
		if got := strings.Join(cache.calls, ", "); got != step.want {
			t.Errorf("step %d: %q, want %q", n, got, step.want)
		}
		if now := measured(); now-ended != step.lists {
			t.Errorf("step %d: %d lists have ended, want %d", n, now-ended, step.lists)
		} else {
			ended = now
		}
	}
}

// The cache gets an address that the pipeline kept, in a copy of the status.
func TestKeptAddress(t *testing.T) {
	for name, test := range map[string]struct{ native, kept, want string }{
		"kept": {"", "10.0.0.1", "10.0.0.1"}, "new": {"10.0.0.2", "10.0.0.1", "10.0.0.2"}, "none": {},
	} {
		native := &kubecontainer.PodStatus{Name: "web-0", IPs: strings.Fields(test.native)}
		got, listed, err := nativeOf(&pleg.PodStatus{IPs: strings.Fields(test.kept), Native: inspected{native, time.Unix(5, 0)}}, nil, time.Unix(9, 0))
		if err != nil || !listed.Equal(time.Unix(5, 0)) || got.Name != "web-0" || strings.Join(got.IPs, " ") != test.want || strings.Join(native.IPs, " ") != test.native || got == native != (name != "kept") {
			t.Errorf("%s: %+v of %v, %v; want %q", name, got, listed, err, test.want)
		}
	}
}
