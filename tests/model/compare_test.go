package model_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// modelBuffer has room for all events between two comparisons: none is discarded.
const modelBuffer = 500

var (
	errScripted = errors.New("scripted error")
	errPanicked = errors.New("the runtime panicked")
)

// fault is what goes wrong in a call of the runtime.
type fault uint8

const (
	works fault = iota
	fails
	panics
	hangs
	answersNil
)

// inject makes the call fail, or returns nil. The reference does not contain panics,
// so it gets an error instead.
func (f fault) inject(ctx context.Context, contained bool) error {
	switch f {
	case fails:
		return errScripted
	case panics:
		if contained {
			panic("scripted panic")
		}
		return errPanicked
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	default:
		return nil
	}
}

// describe returns an event in short.
func describe(e pleg.Event) string {
	exit := ""
	if e.ExitCode != nil {
		exit = fmt.Sprintf(" exit %d %s", *e.ExitCode, e.Reason)
	}
	return fmt.Sprintf("%s(%s %s/%d%s) of %s/%s at %d ms", e.Type, e.ContainerID, e.ContainerName, e.Attempt, exit,
		e.PodNamespace, e.PodName, e.ObservedAt.UnixMilli()%1_000_000)
}

func lines(events []pleg.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("\n\t\t" + describe(e))
	}
	return b.String()
}

// sameEvents compares events, but not their numbers.
func sameEvents(t *testing.T, when string, uid pleg.PodUID, got, want []pleg.Event) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b pleg.Event) bool { a.Seq = b.Seq; return kit.EqualEvents(a, b) }) {
		t.Errorf("%s: events of pod %s\n\tpipeline:%s\n\treference:%s", when, uid, lines(got), lines(want))
	}
}

// sameStatus compares what both caches hold of a pod.
func sameStatus(t *testing.T, when string, uid pleg.PodUID, p *pipeline.Pipeline, ref *serial.PLEG) {
	t.Helper()
	got, gotErr := p.Cache().Get(uid)
	want, wantErr := ref.Status(uid)
	if kind(gotErr) != kind(wantErr) {
		t.Errorf("%s: cached error of pod %s: pipeline %v, reference %v", when, uid, gotErr, wantErr)
		return
	}
	if got, want := fixedTime(got), fixedTime(want); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: cached status of pod %s\n\tpipeline:  %+v\n\treference: %+v", when, uid, got, want)
	}
}

// fixedTime returns the status with a time that reflect.DeepEqual can compare.
func fixedTime(s *pleg.PodStatus) *pleg.PodStatus {
	if s == nil {
		return nil
	}
	fixed := *s
	fixed.ObservedAt = s.ObservedAt.Round(0).UTC()
	return &fixed
}

func kind(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, errScripted):
		return "scripted"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	default:
		return "other"
	}
}
