// Package option completes the fields of Options structs.
package option

import (
	"fmt"
	"time"
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
