package filter

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// selector is a Kubernetes label selector: all of its requirements must hold. The package labels of
// k8s.io/apimachinery, with which the tests of the module kubelet compare it, would bring 33 modules
// into the module graph of each embedder.
type selector []requirement

type requirement struct {
	key    string
	op     string // "" if the key must be there, "!" if not, in, notin, > or <
	values []string
	number int64 // of > and <
}

const (
	space = `[ \t\r\n]*`
	word  = `[^ \t\r\n=!(),<>]`
	list  = `(?:` + space + word + `*` + space + `,)*` + space + word + `*` + space
)

var (
	// oneRequirement is a requirement with the comma that follows it. Its groups are "!", the key,
	// an operator with its value, an operator with its list, and the comma.
	oneRequirement = regexp.MustCompile(`^` + space + `(!?)` + space + `(` + word + `+)(?:` +
		space + `(==?|!=|>|<)` + space + `(` + word + `*)|` +
		`[ \t\r\n]+(in|notin)` + space + `\((` + list + `)\))?` + space + `(,|$)`)
	name   = regexp.MustCompile(`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`)
	domain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// parse returns the selector of a text that is not empty.
func parse(text string) (s selector, err error) {
	for more := true; more; {
		m := oneRequirement.FindStringSubmatch(text)
		if m == nil || m[1] != "" && m[3]+m[5] != "" {
			return nil, fmt.Errorf("%.100q does not begin with KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUES) or KEY notin (VALUES)", text)
		}
		r := requirement{key: m[2], op: m[1] + m[5]}
		switch m[3] {
		case "=", "==":
			r.op, r.values = "in", []string{m[4]}
		case "!=":
			r.op, r.values = "notin", []string{m[4]}
		case ">", "<":
			r.op, r.values = m[3], []string{m[4]}
			if r.number, err = strconv.ParseInt(m[4], 10, 64); err != nil {
				return nil, fmt.Errorf("%.100q is not a whole number", m[4])
			}
		}
		if m[5] != "" {
			for value := range strings.SplitSeq(m[6], ",") {
				r.values = append(r.values, strings.Trim(value, " \t\r\n"))
			}
		}
		if err := r.validate(); err != nil {
			return nil, err
		}
		s = append(s, r)
		text, more = text[len(m[0]):], m[7] == ","
	}
	return s, nil
}

// validate checks keys and values by the rules of Kubernetes: no pod has a label that breaks them.
func (r *requirement) validate() error {
	prefix, key, slash := strings.Cut(r.key, "/")
	if !slash {
		prefix, key = "", prefix
	}
	if len(key) > 63 || !name.MatchString(key) || len(prefix) > 253 || slash && !domain.MatchString(prefix) {
		return fmt.Errorf("%.100q is not a label key", r.key)
	}
	for _, value := range r.values {
		if value != "" && (len(value) > 63 || !name.MatchString(value)) {
			return fmt.Errorf("%.100q is not a label value", value)
		}
	}
	return nil
}

func (s selector) matches(labels map[string]string) bool {
	for i := range s {
		if !s[i].matches(labels) {
			return false
		}
	}
	return true
}

func (r *requirement) matches(labels map[string]string) bool {
	value, ok := labels[r.key]
	switch r.op {
	case "!":
		return !ok
	case "in":
		return ok && slices.Contains(r.values, value)
	case "notin":
		return !ok || !slices.Contains(r.values, value)
	case ">", "<":
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && (r.op == ">" && n > r.number || r.op == "<" && n < r.number)
	}
	return ok
}
