package simruntime_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestIdleConnectionDoesNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		rt := simruntime.New(simruntime.Options{Logger: log.Logger()})
		dial, stop := kit.Serve(t, rt.Serve)
		conn, err := dial(t.Context())
		kit.Must(t, err)
		go func() { // reads, and sends nothing
			_, _ = io.Copy(io.Discard, conn)
		}()
		synctest.Wait()
		began := time.Now()
		_ = stop() // Run reports the error
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stop took %v, want at most 5s", took)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		log.RequireLines(t, 1, `msg="simulated runtime serves" address=bufconn`)
		log.RequireLines(t, 1, `msg="simulated runtime stopped" address=bufconn`)
	})
}
