// Package invariants_test tests what design and docs/reliability.md promise if pods hang,
// the runtime is slow, or the embedder's code misbehaves. Package model_test has the
// invariants that hold for any history.
package invariants_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var errInspect = errors.New("inspection failed")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodePods is the number of pods of a node, as the kubelet allows by default.
const nodePods = 110

// startNode runs a pipeline that knows some running pods and is between two lists, and
// subscribes to what comes then.
func startNode(t *testing.T, o pipeline.Options, pods int) (p *kit.Pipeline, events <-chan pleg.Event) {
	t.Helper()
	p = kit.New(t, o)
	kit.Fill(p.Runtime, pods, "c=running")
	p.StartBetweenLists(t)
	return p, p.Events(t, 10*pods)
}
