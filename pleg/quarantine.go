package pleg

import "time"

// Quarantined is a pod whose last inspection hung.
type Quarantined struct {
	UID       PodUID
	Namespace string
	Name      string
	// Since is when its first inspection in a row that hung had ended.
	Since time.Time
	// Hung is the number of inspections in a row that hung.
	Hung int
	// NextTry is when its wait ends: it is inspected at the first relist after
	// that, as soon as there is an inspector for it.
	NextTry time.Time
	// Err is what the last one ended with.
	Err error
}
