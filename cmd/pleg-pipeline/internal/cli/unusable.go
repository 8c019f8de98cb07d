package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
)

// unusable says of a runtime that failed its check where its address came from
// and what to do. The call's own error, long and technical, gets a line of its
// own.
func unusable(err error, from endpoint.Endpoint) error {
	why, detail := err.Error(), ""
	if cause := errors.Unwrap(err); cause != nil {
		if short, ok := strings.CutSuffix(why, ": "+cause.Error()); ok {
			why, detail = short, "\n  cause: "+cause.Error()
		}
	}
	return unusableError{
		err: err,
		text: fmt.Sprintf("%s%s\n  the address is from %s; name another one with --runtime-endpoint,\n  or try the program without a runtime: %s run --simulate",
			why, detail, from.Source, Name),
	}
}

type unusableError struct {
	err  error
	text string
}

func (e unusableError) Error() string { return e.text }

func (e unusableError) Unwrap() error { return e.err }
