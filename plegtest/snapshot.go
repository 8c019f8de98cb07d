package plegtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// idsOf returns the ids of a pod or of its status, in order.
func idsOf(of any) (ids []pleg.ContainerID) {
	switch of := of.(type) {
	case *pleg.Pod:
		for _, c := range slices.Concat(of.Containers, of.Sandboxes) {
			ids = append(ids, c.ID)
		}
	case *pleg.PodStatus:
		for _, c := range of.Containers {
			ids = append(ids, c.ID)
		}
		for _, s := range of.Sandboxes {
			ids = append(ids, s.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func withoutNative(pod *pleg.Pod) pleg.Pod {
	p := *pod
	p.Native = nil
	return p
}

// snapshot returns the content of a pod, of pods or of a status, except Native.
func snapshot(of any) string {
	switch v := of.(type) {
	case *pleg.Pod:
		if v != nil {
			of = withoutNative(v)
		}
	case *pleg.PodStatus:
		if v != nil {
			s := *v
			s.Native = nil
			of = s
		}
	case []*pleg.Pod:
		return fmt.Sprint(sorted(v))
	}
	text, err := json.Marshal(of)
	if err != nil {
		return err.Error() // v is of none of these types
	}
	return string(text)
}

func sorted(pods []*pleg.Pod) (snapshots []string) {
	for _, pod := range pods {
		snapshots = append(snapshots, snapshot(pod))
	}
	slices.Sort(snapshots)
	return snapshots
}

// notUTF8 returns a text anywhere in v, except in Native, that is not UTF-8; "" if there is none.
func notUTF8(v reflect.Value) (text string) {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return v.String()
		}
	case reflect.Pointer:
		return notUTF8(v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			text = cmp.Or(text, notUTF8(field))
		}
	case reflect.Slice:
		for i := range v.Len() {
			text = cmp.Or(text, notUTF8(v.Index(i)))
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			text = cmp.Or(text, notUTF8(key), notUTF8(value))
		}
	}
	return text
}
