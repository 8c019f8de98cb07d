package border

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// latest is the last time that JSON and protobuf can express.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)

// maxOffset is more than the offset of any time zone, and less than an offset that JSON refuses.
const maxOffset = 18 * 60 * 60

// cut returns a time that JSON and protobuf can express: the zero time for a time before year 1, and the
// last time of year 9999 for a later one.
func cut(t time.Time) time.Time {
	utc := t.UTC()
	switch _, offset := t.Zone(); {
	case t.IsZero():
		return t
	case utc.Year() < 1:
		return time.Time{}
	case utc.Year() > 9999:
		return latest
	case offset < -maxOffset || offset > maxOffset || t.Year() < 1 || t.Year() > 9999:
		return utc
	}
	return t
}

// cutTimes cuts the times of listed items. It returns the list itself if there is none to cut.
func cutTimes(list []*pleg.Container) (_ []*pleg.Container, changed bool) {
	for n, c := range list {
		if at := cut(c.CreatedAt); at != c.CreatedAt {
			if !changed {
				list, changed = slices.Clone(list), true
			}
			other := *c
			other.CreatedAt = at
			list[n] = &other
		}
	}
	return list, changed
}

// cutStatus cuts the times of a status. It returns the status itself if there is none to cut.
func cutStatus(s *pleg.PodStatus) *pleg.PodStatus {
	containers, sandboxes := s.Containers, s.Sandboxes
	for n, c := range s.Containers {
		if other := cutContainer(c); other != c {
			if &containers[0] == &s.Containers[0] {
				containers = slices.Clone(containers)
			}
			containers[n] = other
		}
	}
	for n, sandbox := range s.Sandboxes {
		if at := cut(sandbox.CreatedAt); at != sandbox.CreatedAt {
			if &sandboxes[0] == &s.Sandboxes[0] {
				sandboxes = slices.Clone(sandboxes)
			}
			other := *sandbox
			other.CreatedAt = at
			sandboxes[n] = &other
		}
	}
	if len(containers) > 0 && &containers[0] != &s.Containers[0] || len(sandboxes) > 0 && &sandboxes[0] != &s.Sandboxes[0] {
		other := *s
		other.Containers, other.Sandboxes = containers, sandboxes
		return &other
	}
	return s
}

func cutContainer(c *pleg.ContainerStatus) *pleg.ContainerStatus {
	created, started, finished := cut(c.CreatedAt), cut(c.StartedAt), cut(c.FinishedAt)
	//nolint:staticcheck // a time that was cut may be equal, in another zone
	if created == c.CreatedAt && started == c.StartedAt && finished == c.FinishedAt {
		return c
	}
	other := *c
	other.CreatedAt, other.StartedAt, other.FinishedAt = created, started, finished
	return &other
}
