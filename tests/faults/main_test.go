package faults_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var (
	replayFile  = flag.String("faults.replay", "", "file of a schedule that TestReplay plays besides its own")
	randomSeed  = flag.Uint64("faults.seed", 0, "run TestRandomFaults with this seed only (0: many)")
	randomSeeds = flag.Uint64("faults.seeds", 20, "number of seeds of TestRandomFaults")
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
