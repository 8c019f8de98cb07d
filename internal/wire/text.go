package wire

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Text replaces what is not UTF-8, which a message cannot carry: otherwise one bad
// string from an embedder's runtime would end every stream.
func Text(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

func texts(in []string) []string {
	if !slices.ContainsFunc(in, func(s string) bool { return !utf8.ValidString(s) }) {
		return in
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = Text(s)
	}
	return out
}

func textMap(in map[string]string) map[string]string {
	for k, v := range in {
		if utf8.ValidString(k) && utf8.ValidString(v) {
			continue
		}
		out := make(map[string]string, len(in))
		for k, v := range in {
			out[Text(k)] = Text(v)
		}
		return out
	}
	return in
}
