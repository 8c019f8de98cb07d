package podview

import (
	"cmp"
	"errors"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// ErrNotYet is the error of a pod that has not been inspected yet.
var ErrNotYet = errors.New("the first inspection has not ended yet")

// Entries returns what a cache knows of all pods in the order of the UIDs. Those
// that have not been inspected yet are among them, with [ErrNotYet] and without
// a time: a pod whose first inspection hangs is not to go unseen.
func Entries(c *cache.Cache) []cache.Entry {
	// The pods that wait come first: one that is inspected in between is in
	// the other list then.
	waiting := c.Pending()
	entries := c.List()
	known := len(entries)
	for _, p := range waiting {
		_, inspected := slices.BinarySearchFunc(entries[:known], p.UID, func(e cache.Entry, uid pleg.PodUID) int {
			return cmp.Compare(e.UID, uid)
		})
		if !inspected && p.Status == nil {
			entries = append(entries, cache.Entry{UID: p.UID, Err: ErrNotYet})
		}
	}
	slices.SortFunc(entries, func(a, b cache.Entry) int { return cmp.Compare(a.UID, b.UID) })
	return entries
}

// List returns the views of the [Entries] of a cache.
func List(c *cache.Cache) []Pod {
	entries := Entries(c)
	pods := make([]Pod, 0, len(entries))
	for _, e := range entries {
		pods = append(pods, New(e.UID, e.Status, e.Err, e.CurrentAsOf))
	}
	return pods
}
