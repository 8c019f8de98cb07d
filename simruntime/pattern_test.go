package simruntime_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func drawFaults(t *testing.T, seed uint64, patterns ...string) []simruntime.Fault {
	t.Helper()
	faults, err := simruntime.DrawFaults(seed, 30*time.Second, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

func TestSeedDeterminesFaults(t *testing.T) {
	patterns := []string{"*/*/*", "*/error/random", "ContainerStatus/*/once", "*/slow/always"}
	first := drawFaults(t, 1, patterns...)
	if again := drawFaults(t, 1, patterns...); !reflect.DeepEqual(first, again) {
		t.Errorf("the same seed gives\n%+v\nand\n%+v", first, again)
	}
	if other := drawFaults(t, 2, patterns...); reflect.DeepEqual(first, other) {
		t.Error("another seed gives the same faults")
	}
}

// TestEveryFaultIsDrawn also plays each drawn fault, which fails if it is not
// valid.
func TestEveryFaultIsDrawn(t *testing.T) {
	seen := make(map[string]bool)
	for _, call := range simruntime.FaultCalls() {
		for _, kind := range simruntime.FaultKinds(call) {
			for seed := range uint64(20) {
				f := drawFaults(t, seed, call+"/"+kind+"/*")[0]
				if _, err := newRuntime(t, simruntime.Options{}).Inject(untimed(f)); err != nil || f.Until <= f.From {
					t.Errorf("%+v: %v", f, err)
				}
				seen[f.String()] = true
			}
			for _, when := range []string{simruntime.FaultOnce, simruntime.FaultAlways, simruntime.FaultRandom} {
				if name := fmt.Sprintf("%s/%s/%s", call, kind, when); !seen[name] {
					t.Errorf("%s is not drawn", name)
				}
			}
		}
	}
}

func untimed(f simruntime.Fault) simruntime.Fault {
	f.From, f.Until = 0, 0
	return f
}

func TestBadPatternNamesTheWord(t *testing.T) {
	for text, want := range map[string]string{
		"ContainerStatus":               "want CALL/KIND/WHEN",
		"ContainerStatus/hang":          "want CALL/KIND/WHEN",
		"Attach/hang/once":              `call "Attach": want one of *, ContainerStatus, GetContainerEvents`,
		"ContainerStatus/truncate/once": `kind "truncate": ContainerStatus has *, [error hang slow malform]`,
		"*/burn/once":                   `kind "burn"`,
		"ContainerStatus/hang/twice":    `"twice": want once, always, random or *`,
	} {
		if _, err := simruntime.DrawFaults(1, time.Minute, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
