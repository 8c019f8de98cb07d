package podview

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
)

var errNotYet = errors.New("the first inspection has not ended yet")

// List returns all pods of a cache in the order of the UIDs, with those that
// have not been inspected yet.
func List(c *cache.Cache) []Pod {
	// The pods that wait come first: one that is inspected in between is in
	// the other list then.
	waiting := c.Pending()
	known := c.List()
	pods := make([]Pod, 0, len(known))
	for _, e := range known {
		pods = append(pods, New(e.UID, e.Status, e.Err, e.CurrentAsOf))
	}
	for _, p := range waiting {
		if !slices.ContainsFunc(known, func(e cache.Entry) bool { return e.UID == p.UID }) && p.Status == nil {
			pods = append(pods, New(p.UID, nil, errNotYet, time.Time{}))
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}
