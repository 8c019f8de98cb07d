package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// asRuntime names the file in which the test binary notes its arguments when it is started as the simulated runtime.
const asRuntime = "RELISTCOST_TEST_AS_RUNTIME"

func TestMain(m *testing.M) {
	if file := os.Getenv(asRuntime); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(os.Args[1:], " ")), 0o600); err != nil {
			panic(err)
		}
		return
	}
	m.Run()
}

// The simulated runtime has the pods that the flags ask for, and changes them only with -churn.
func TestSimulatedRuntimeGetsTheFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "arguments")
	t.Setenv(asRuntime, file)
	for want, n := range map[string]node{
		"-pods 7 -containers 3 -annotations 100 -churn=true -projection=false": {pods: 7, containers: 3, annotations: 100, churn: true},
		"-pods 3 -containers 7 -annotations 200 -churn=false -projection=true": {pods: 3, containers: 7, annotations: 200, projection: true},
	} {
		c := &config{node: n}
		if err := c.simulate(t.Context()); err == nil || err.Error() != "the simulated runtime does not start" {
			t.Errorf("simulate = %v, want that the runtime does not start", err)
		}
		got, err := os.ReadFile(file)
		kit.Must(t, err)
		if want := "-serve -socket " + c.socket + " " + want; string(got) != want {
			t.Errorf("the runtime is started with %s, want %s", got, want)
		}
	}
}

// The time that a relist takes in the kernel, to read a large list, counts too.
func TestUsageCountsTheKernel(t *testing.T) {
	zeros, err := os.Open("/dev/zero")
	kit.Must(t, err)
	defer zeros.Close()
	var before, after syscall.Rusage
	for buffer := make([]byte, 1<<20); before.Stime.Nano() < 20e6; {
		_, err := zeros.Read(buffer)
		kit.Must(t, err)
		kit.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	}
	got := now()
	kit.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	ms := func(r syscall.Rusage) float64 { return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e6 }
	if got.cpuMS < ms(before) || got.cpuMS > ms(after) {
		t.Errorf("%v ms of CPU, want %v to %v", got.cpuMS, ms(before), ms(after))
	}
}

// A row has the usage of one relist, and the longest pause that came since.
func TestRow(t *testing.T) {
	before := now()
	after := before
	after.pauses = append([]uint64(nil), before.pauses...)
	after.allocs, after.allocMB, after.cpuMS, after.gcs = after.allocs+40, after.allocMB+60, after.cpuMS+80, after.gcs+5
	bounds := pauses().Buckets
	after.pauses[2], after.pauses[len(after.pauses)/2] = after.pauses[2]+1, after.pauses[len(after.pauses)/2]+1
	used := after.since(before, 20)
	used.peakMB = 7
	longest := fmt.Sprintf("%.2f", bounds[len(after.pauses)/2+1]*1e3)
	for churn, what := range map[bool]string{false: "idle", true: "1 %"} {
		c := &config{name: "kubelet", node: node{pods: 110, churn: churn}}
		if got, want := c.row(used), "| kubelet | 110 | "+what+" | 2 | 3.0 | 4.0 | 7 | 0.25 | "+longest+" |"; got != want {
			t.Errorf("the row is %s, want %s", got, want)
		}
	}
}
