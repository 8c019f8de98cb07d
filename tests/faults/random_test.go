package faults_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// TestRandomFaults has several faults at once, all drawn from the seed.
func TestRandomFaults(t *testing.T) {
	first, last := uint64(1), *randomSeeds
	if *randomSeed != 0 {
		first, last = *randomSeed, *randomSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			s, m := drawFaults(t, seed)
			synctest.Test(t, func(t *testing.T) { inBubble(t, s, m, eitherWay) })
		})
	}
}

// drawFaults draws faults, one of them surely of something that is called, and
// how the pipeline learns of changes.
func drawFaults(t *testing.T, seed uint64) (*schedule.Schedule, mode) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 9))
	m := modes[rng.IntN(len(modes))]
	m.unary = rng.IntN(3) == 0
	specs := []schedule.Spec{{Call: "ContainerStatus", Kind: schedule.Any, When: schedule.Always}}
	for range rng.IntN(5) {
		specs = append(specs, schedule.Spec{Call: schedule.Any, Kind: schedule.Any, When: schedule.Any})
	}
	for _, method := range []string{"ListPods", "PodStatus", "ListPod", "WatchEvents"} {
		if rng.IntN(4) == 0 {
			specs = append(specs, schedule.Spec{Call: method, Kind: schedule.Panic, When: schedule.Any})
		}
	}
	s, err := schedule.Draw(t.Context(), schedule.Options{
		Seed: seed, Pods: 1 + rng.IntN(12), Containers: 1 + rng.IntN(2), Rate: matrixRate, Duration: matrixEnd * time.Second, Faults: specs,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

// TestReplay plays files: those in testdata, each of which has led to a bug, and
// the one of -faults.replay.
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	if *replayFile != "" {
		files = append(files, *replayFile)
	}
	for _, file := range files {
		for _, m := range []mode{
			{events: pipeline.EventsOff}, {events: pipeline.EventsAuto}, {pipeline.EventsOff, true}, {pipeline.EventsAuto, true},
		} {
			t.Run(fmt.Sprintf("%s/%v/unary=%t", filepath.Base(file), m, m.unary), func(t *testing.T) {
				t.Parallel()
				s := load(t, file)
				synctest.Test(t, func(t *testing.T) { inBubble(t, s, m, eitherWay) })
			})
		}
	}
}

func load(t *testing.T, path string) *schedule.Schedule {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := schedule.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
