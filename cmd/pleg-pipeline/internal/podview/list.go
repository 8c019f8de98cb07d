package podview

import "github.com/pleg-pipeline/pleg-pipeline/cache"

// List returns the views of all pods in a cache, sorted by UID.
func List(c *cache.Cache) []Pod {
	entries := c.List()
	pods := make([]Pod, 0, len(entries))
	for _, e := range entries {
		pods = append(pods, New(e.UID, e.Status, e.Err, e.CurrentAsOf))
	}
	return pods
}
