package kit

import "github.com/pleg-pipeline/pleg-pipeline/tests/promises"

// The names of package promises that tests/soak uses.
type (
	Truth     = promises.Truth
	Pod       = promises.Pod
	Container = promises.Container
	NodeState = promises.State
)

// SimulatedTruth is [promises.SimulatedTruth].
var SimulatedTruth = promises.SimulatedTruth
