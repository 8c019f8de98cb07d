package border

import (
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// reportWithin is how long a Report is waited for. A Report reads a few files, in a millisecond.
const reportWithin = 50 * time.Millisecond

var errNoReport = errors.New("the runtime's Report panics")

// Report returns the runtime's report, an empty one if it is no [pleg.Reporter]. While the runtime
// does not return, Report returns its last report, and after a second also says that it does not
// return.
func (r *Runtime) Report() pleg.Report {
	reporter, ok := r.embedded.(pleg.Reporter)
	if !ok {
		return pleg.Report{}
	}
	of := subject{method: "Report"}
	call, running := r.calls.begin(of)
	if call != nil {
		running = call
		start(r.log, of, func() error {
			defer r.calls.end(of, call)
			report := pleg.Report{Degraded: errNoReport} // unless it returns
			defer func() { r.report.Store(&report) }()
			report = reporter.Report()
			return nil
		})
	}
	within := reportWithin
	if r.calls.isAbandoned(running) {
		within = 0
	}
	_, returned, took := await(running.returned, within, time.After)
	report := *r.report.Load()
	if age := time.Since(running.began); !returned && age >= grace && !late(took, within) {
		r.calls.abandon(of, running)
		report.Degraded = fmt.Errorf("the runtime's Report has not returned for %v", age.Round(time.Second))
	}
	return report
}
