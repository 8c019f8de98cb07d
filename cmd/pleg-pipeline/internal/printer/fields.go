package printer

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// fields returns v as templates see it: a struct is a map by its JSON names, also of
// the fields that JSON omits, a time is a text as in JSON, and a nil pointer is nil.
func fields(v any) any { return fieldsOf(reflect.ValueOf(v)) }

// names returns the names of the fields of a struct.
func names(v any) []string {
	return slices.Sorted(maps.Keys(fields(v).(map[string]any)))
}

func fieldsOf(v reflect.Value) any {
	if at, ok := reflect.TypeAssert[time.Time](v); ok {
		return at.Format(time.RFC3339Nano)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return fieldsOf(v.Elem())
	case reflect.Slice:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = fieldsOf(v.Index(i))
		}
		return items
	case reflect.Struct:
		values := make(map[string]any, v.NumField())
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			values[name] = fieldsOf(v.Field(i))
		}
		return values
	default:
		return v.Interface()
	}
}
