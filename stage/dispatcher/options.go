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

// DefaultBuffer is the capacity of the kubelet's event channel (v1.37), in events.
const DefaultBuffer = 1000

// complete sets the defaults and returns the filter.
func complete(o *pleg.SubscribeOptions) (filter.Filter, error) {
	if !utf8.ValidString(o.Name) || strings.ContainsFunc(o.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return filter.Filter{}, fmt.Errorf("Name must be printable UTF-8, got %q", o.Name)
	}
	if o.Buffer < 0 {
		return filter.Filter{}, fmt.Errorf("Buffer must not be negative, got %d", o.Buffer)
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	if o.After.Epoch == "" && o.After.Seq != 0 {
		return filter.Filter{}, fmt.Errorf("After has no epoch, so its number %d may be that of another pipeline: use Event.Position", o.After.Seq)
	}
	if !o.Since.IsZero() && o.After != (pleg.Position{}) {
		return filter.Filter{}, errors.New("After and Since exclude each other")
	}
	return filter.New(o.Filter)
}
