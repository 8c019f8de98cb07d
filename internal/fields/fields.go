// Package fields guards tests that copy or encode a struct field by field.
package fields

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Require fails unless the names, with spaces between them, are the fields of a struct: the fields that a test
// copies or encodes, and the fields that it leaves out. So a new field cannot be forgotten.
func Require(t testing.TB, value any, names ...string) {
	t.Helper()
	known := strings.Fields(strings.Join(names, " "))
	of := reflect.TypeOf(value)
	for field := range of.Fields() {
		if i := slices.Index(known, field.Name); i >= 0 {
			known = slices.Delete(known, i, i+1)
		} else {
			t.Errorf("the test neither encodes %s.%s nor says why it may leave it out", of, field.Name)
		}
	}
	if len(known) > 0 {
		t.Errorf("%s has no fields %q", of, known)
	}
}
