package option

import (
	"fmt"
	"math"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// CheckQuery returns an error that names the mistake in a query and wraps [pleg.ErrInvalidOption],
// or nil.
func CheckQuery(q lookup.Query) error {
	set := 0
	for _, is := range []bool{q.Container != "", q.PID != 0, q.Cgroup != 0} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("look up: %w: set exactly one of Container, PID and Cgroup", pleg.ErrInvalidOption)
	case q.PID < 0 || q.PID > math.MaxInt32:
		return fmt.Errorf("look up: %w: PID must be positive and below 2^31, got %d", pleg.ErrInvalidOption, q.PID)
	case q.Wait < 0:
		return fmt.Errorf("look up: %w: Wait must not be negative, got %v", pleg.ErrInvalidOption, q.Wait)
	}
	return nil
}
