package pleg

import "time"

// Quarantined is a pod whose last inspection hung.
type Quarantined struct {
	UID       PodUID
	Namespace string
	Name      string
	// Since is the end of the first inspection that hung or failed late; all later ones did too.
	Since time.Time
	// Hung is the number of inspections in a row that hung or failed late.
	Hung int
	// NextTry is when its wait ends. It is inspected at the first relist after that, as
	// soon as there is a place.
	NextTry time.Time
	// Err is the error of the last one.
	Err error
}
