package faults_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var (
	wholeMatrix = flag.Bool("faults.matrix", false, "run each random fault of TestFaultMatrix with and without events")
	randomSeed  = flag.Uint64("faults.seed", 0, "run TestRandomFaults with this seed only (0: many)")
	randomSeeds = flag.Uint64("faults.seeds", 10, "number of seeds of TestRandomFaults")
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
