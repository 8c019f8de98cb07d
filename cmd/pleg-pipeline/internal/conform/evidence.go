package conform

import (
	"fmt"
	"slices"
	"time"
)

func count(n int, of int, what string) string { return fmt.Sprintf("%d of %d %s", n, of, what) }

// quantiles describes durations.
func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, max %v of %d", round(d[len(d)/2]), round(d[len(d)-1]), len(d))
}
