// Package option completes the fields of Options structs.
package option

import (
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Default sets the field at value, called name, to def if it is zero. It returns an
// error that names the field if it is negative.
func Default[T int | time.Duration](name string, value *T, def T) error {
	switch {
	case *value < 0:
		return fmt.Errorf("Options.%s must be positive, got %v", name, *value)
	case *value == 0:
		*value = def
	}
	return nil
}

// OffOrDefault sets the field at value to def if it is zero, and to off if it is negative.
func OffOrDefault[T int | time.Duration](value *T, def, off T) {
	switch {
	case *value < 0:
		*value = off
	case *value == 0:
		*value = def
	}
}

// Invalid returns an error with the text of err that wraps it and [pleg.ErrInvalidOption];
// nil if err is nil.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return invalid{err}
}

type invalid struct{ error }

func (e invalid) Unwrap() []error { return []error{e.error, pleg.ErrInvalidOption} }
