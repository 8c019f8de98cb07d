package dispatcher

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// check returns the filter of a subscriber, or an error that names the bad option.
func check(o *pleg.SubscribeOptions) (filter.Filter, error) {
	if !utf8.ValidString(o.Name) || strings.ContainsFunc(o.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return filter.Filter{}, fmt.Errorf("Name must be printable UTF-8, got %q", o.Name)
	}
	if o.After.Epoch == "" && o.After.Seq != 0 {
		return filter.Filter{}, fmt.Errorf("After has no epoch, so its number %d may be of another pipeline: use Event.Position", o.After.Seq)
	}
	if !o.Since.IsZero() && o.After != (pleg.Position{}) {
		return filter.Filter{}, errors.New("After and Since exclude each other")
	}
	return filter.New(o.Filter)
}
