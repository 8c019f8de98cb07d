package kit

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// RequireRows requires a row in a table for each option of a struct: the name of the row begins with the
// name of the field. A new option without a row fails the test.
func RequireRows[Row any](t testing.TB, options any, rows map[string]Row) {
	t.Helper()
	names := slices.Collect(maps.Keys(rows))
	of := reflect.TypeOf(options)
	for field := range of.Fields() {
		if !slices.ContainsFunc(names, func(row string) bool { word, _, _ := strings.Cut(row, " "); return word == field.Name }) {
			t.Errorf("no row gives %s.%s a value that is not the default, and sees it where it acts", of, field.Name)
		}
	}
	for _, row := range names {
		word, _, _ := strings.Cut(row, " ")
		if _, ok := of.FieldByName(word); !ok {
			t.Errorf("the row %q is of no option of %s", row, of)
		}
	}
}
