package option_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A zero value becomes the default. A negative one is an error, or switches something off.
func TestDefaults(t *testing.T) {
	for given, want := range map[time.Duration]string{0: "5ns <nil>, 5ns", 1: "1ns <nil>, 1ns", -1: "-1ns Options.Wait must be positive, got -1ns, 7ns"} {
		value, other := given, given
		err := option.Default("Wait", &value, 5)
		option.OffOrDefault(&other, 5, 7)
		if got := fmt.Sprintf("%v %v, %v", value, err, other); got != want {
			t.Errorf("%v becomes %s, want %s", given, got, want)
		}
	}
}

// The error of a bad option keeps its text and its cause.
func TestInvalid(t *testing.T) {
	broken := errors.New("broken")
	if err := option.Invalid(broken); !errors.Is(err, broken) || !errors.Is(err, pleg.ErrInvalidOption) || err.Error() != "broken" {
		t.Errorf("got %v", err)
	}
	if err := option.Invalid(nil); err != nil {
		t.Errorf("no mistake is %v", err)
	}
}

// A query names one thing, with a number that a process can have.
func TestCheckQuery(t *testing.T) {
	const one = "look up: invalid option: set exactly one of Container, PID and Cgroup"
	for q, want := range map[lookup.Query]string{
		{}: one, {Container: "c", PID: 1}: one, {PID: 1, Cgroup: 1}: one, {Container: "c", Cgroup: 1}: one, {Container: "c", PID: 1, Cgroup: 1}: one,
		{Container: "c", Wait: 1}: "<nil>", {PID: 1}: "<nil>", {PID: math.MaxInt32}: "<nil>", {Cgroup: 1}: "<nil>",
		{PID: -1}:                "look up: invalid option: PID must be positive and below 2^31, got -1",
		{PID: math.MaxInt32 + 1}: "look up: invalid option: PID must be positive and below 2^31, got 2147483648",
		{PID: 1, Wait: -1}:       "look up: invalid option: Wait must not be negative, got -1ns",
	} {
		if err := option.CheckQuery(q); fmt.Sprint(err) != want || err != nil && !errors.Is(err, pleg.ErrInvalidOption) {
			t.Errorf("%+v: %v, want %s", q, err, want)
		}
	}
}
