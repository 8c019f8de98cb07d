package invariants_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// An inspection that has reached its deadline has failed, also if a request comes before its call returns.
func TestRequestAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{InspectTimeout: 5 * time.Second})
		p.Runtime.Set("p", "a=running")
		p.Runtime.SetPodFault("p", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second / 2)
			return ctx.Err()
		})
		p.Start(t)
		time.Sleep(5*time.Second + time.Second/4)
		p.RequestRelist("p")
		time.Sleep(time.Second / 2)
		synctest.Wait()
		_, err := p.Cache().Get("p")
		requireText(t, err, "inspect timeout of 5s")
	})
}
