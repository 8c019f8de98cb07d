package view

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// Format is a way to print events or pods. The zero value is [Text].
type Format string

const (
	// Text prints columns.
	Text Format = "text"
	// Wide prints more columns.
	Wide Format = "wide"
	// Name prints NAMESPACE/NAME of the pod, or its UID if the name is not known.
	Name Format = "name"
	// JSON prints one object per line.
	JSON Format = "json"
)

// Formats returns the names of all formats.
func Formats() []string {
	return []string{string(Text), string(Wide), string(Name), string(JSON)}
}

// hasColumns reports whether a format is text.
func (f Format) hasColumns() bool { return f == "" || f == Text || f == Wide }

// fullName returns NAMESPACE/NAME of a pod, or its UID if the name is not known.
func fullName(namespace, name string, uid pleg.PodUID) string {
	if name == "" {
		return string(uid)
	}
	return namespace + "/" + name
}
