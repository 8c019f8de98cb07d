package model_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
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

// seen is an event without its sequence number, in a form that == compares.
type seen struct {
	pleg.Event
	exited bool
	exit   int32
	at     int64
}

func seenOf(e pleg.Event) seen {
	s := seen{Event: e, at: e.ObservedAt.UnixNano()}
	if e.ExitCode != nil {
		s.exited, s.exit = true, *e.ExitCode
	}
	s.Seq, s.ExitCode, s.ObservedAt = 0, nil, time.Time{}
	return s
}

func (s seen) String() string {
	exit := ""
	if s.exited {
		exit = fmt.Sprintf(" exit %d %s", s.exit, s.Reason)
	}
	return fmt.Sprintf("%s(%s %s/%d%s) of %q at %d ms", s.Type, s.ContainerID, s.ContainerName, s.Attempt, exit,
		s.PodNamespace+"/"+s.PodName, s.at/int64(time.Millisecond)%1_000_000)
}

func lines(events []seen) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n\t\t%v", e)
	}
	return b.String()
}

// byPod returns the events of each pod, in order.
func byPod(events []pleg.Event) map[pleg.PodUID][]seen {
	pods := make(map[pleg.PodUID][]seen)
	for _, e := range events {
		pods[e.PodUID] = append(pods[e.PodUID], seenOf(e))
	}
	return pods
}

func sameEvents(t *testing.T, when string, uid pleg.PodUID, got, want []seen) {
	t.Helper()
	if !slices.Equal(got, want) {
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

// within receives from c, and fails the test after an hour of the bubble's time:
// timers hide a deadlock from the bubble.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Hour):
		t.Fatalf("still waiting for %s", what)
	}
	var none T
	return none
}
