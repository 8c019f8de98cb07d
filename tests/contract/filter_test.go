package contract_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A subscriber that names ContainerCreated gets it, also as the present state; others do not.
// A container in an unknown state has no event.
func TestContractCreated(t *testing.T) {
	inProcess(t, pipeline.Options{}, func(f *fixture) {
		named := pipeline.SubscribeOptions{Replay: true, Filter: pleg.Filter{Types: eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest)}}
		subscribe := func(o pipeline.SubscribeOptions) pipeline.Subscription {
			sub, err := f.Subscribe(o)
			kit.Must(f, err)
			return sub
		}
		first, others := subscribe(named), subscribe(pipeline.SubscribeOptions{})
		f.Runtime.Set("p0", "c=created d=unknown")
		kit.Relist(1)
		late := subscribe(named)
		f.Runtime.Set("p0", "c=running d=running")
		kit.Relist(1)
		for sub, want := range map[pipeline.Subscription]string{
			first: "Synced() Created(c) Started(c) Started(d)", late: "Created(c) Synced() Started(c) Started(d)", others: "Started(c) Started(d)",
		} {
			if got := plegtest.Words(kit.Read(f, sub)...); got != want {
				f.Errorf("got %s, want %s", got, want)
			}
		}
	})
}
