package invariants_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The cost of a change does not depend on the number of containers in its pod: with events it is two
// lists of the pod and a status, with polling a status. The calls that are made without changes do not
// count.
func TestChangeCostsWhatChanged(t *testing.T) {
	for _, tt := range []struct {
		name    string
		events  pipeline.EventsMode
		carries bool
		most    float64 // calls for each change
	}{
		{"events", pipeline.EventsRequire, false, 3.0},
		{"events, statuses are carried", pipeline.EventsRequire, true, 3.0},
		{"polling", pipeline.EventsOff, false, 1.2},
		{"polling, statuses are carried", pipeline.EventsOff, true, 1.2},
	} {
		for _, containers := range []int{1, 20} {
			kit.Bubble(t, fmt.Sprintf("%s, %d containers", tt.name, containers), func(t *testing.T) {
				node := simruntime.New(simruntime.Options{Seed: 1, StatusesInSandbox: tt.carries})
				s := kit.Simulate(t, node, pipeline.Options{Events: tt.events}, cri.Options{})
				pods := s.Populate(simruntime.Population{Pods: 5, Containers: containers})
				var changes atomic.Int64
				s.Follow(t, pleg.SubscribeOptions{}, func(ev pleg.Event) {
					if !ev.Replayed && (ev.Type == pleg.ContainerStarted || ev.Type == pleg.ContainerDied || ev.Type == pleg.ContainerRemoved) {
						changes.Add(1)
					}
				})
				const steps, each = 90, 300 * time.Millisecond
				calls := func(step func(n int)) int64 {
					time.Sleep(15 * time.Second)
					node.ResetStats()
					for n := range steps {
						step(n)
						time.Sleep(each)
					}
					time.Sleep(15 * time.Second)
					return node.Stats().Calls()
				}
				idle := calls(func(int) {})
				changes.Store(0)
				lives := make([]pleg.ContainerID, len(pods)) // the newest container of each pod
				busy := calls(func(n int) {
					of := n % len(pods)
					node.Update(func(s *simruntime.State) {
						switch id := lives[of]; n / len(pods) % 3 {
						case 0:
							c, err := s.AddContainer(pods[of].UID, pleg.ContainerStatus{Name: "job", Attempt: uint32(n)})
							kit.Must(t, err)
							lives[of] = c.ID
						case 1:
							kit.Must(t, s.ExitContainer(id, 3, ""))
						case 2:
							kit.Must(t, s.RemoveContainer(id))
						}
					})
				}) - idle
				if changes.Load() != steps {
					t.Errorf("%d changes were reported, want %d", changes.Load(), steps)
				}
				cost := float64(busy) / steps
				t.Logf("%.2f calls for each change", cost)
				if cost > tt.most {
					t.Errorf("%.2f calls for each change, want at most %.1f: %v", cost, tt.most, node.Stats().RPCs)
				}
			})
		}
	}
}
