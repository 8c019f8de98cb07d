// Package control is the protocol between the benchmark and the processes it
// measures: one JSON object per line on standard input, and one line of answer for
// each on standard output.
//
// There are two kinds. A client runs a candidate (the serial baseline, the
// kubelet's own generator or the pipeline) and takes a [Command]; the node runs
// the simulated container runtime and takes an [Order].
package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"time"
)

// Serve answers every message of in on out until in ends. It returns an error if a
// message cannot be read or an answer cannot be written.
func Serve[In, Out any](in io.Reader, out io.Writer, handle func(In) Out) error {
	messages, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var message In
		if err := messages.Decode(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read control message: %w", err)
		}
		if err := answers.Encode(handle(message)); err != nil {
			return fmt.Errorf("answer control message: %w", err)
		}
	}
}

// Command is a request to a client.
type Command struct {
	// Do is one of the Client constants.
	Do string `json:"do"`
	// Want is the number of events of each type that end the window.
	Want map[string]int `json:"want,omitempty"`
	// TimeoutMS bounds ClientWait, in milliseconds.
	TimeoutMS int `json:"timeoutMS,omitempty"`
}

// The commands of a client.
const (
	ClientStart  = "start"  // starts the candidate
	ClientExpect = "expect" // begins a window of measurement
	ClientWait   = "wait"   // answers when the window has its events
	ClientReport = "report" // answers at once
)

// Seen counts the events of one type.
type Seen struct {
	Count int `json:"count"`
	// LastMS is the arrival of the last one, in milliseconds from the beginning of the
	// relist that saw the first change of the window.
	LastMS float64 `json:"lastMS"`
}

// Arrival is one event and when it arrived.
type Arrival struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	// UnixNS is the wall clock, which both processes share.
	UnixNS int64 `json:"unixNS"`
}

// Report is what a client received in a window, and its cost.
type Report struct {
	Err string `json:"err,omitempty"`
	// Done reports whether the window has all its events.
	Done  bool            `json:"done"`
	Seen  map[string]Seen `json:"seen,omitempty"`
	Usage Usage           `json:"usage"`
	// Log has all events of the window.
	Log []Arrival `json:"log,omitempty"`
}

// Order is a request to the node.
type Order struct {
	// Do is one of the Node constants.
	Do string `json:"do"`
	// Pods and Containers describe the pods that NodePopulate adds. Finished pods
	// have exited containers and a sandbox that is not ready.
	Pods       int  `json:"pods,omitempty"`
	Containers int  `json:"containers,omitempty"`
	Finished   bool `json:"finished,omitempty"`
	// Change is restart or exit. NodeBurst applies it to that many pods in one step.
	Change string `json:"change,omitempty"`
	// Profile is the name of a latency profile of the simulated runtime.
	Profile string `json:"profile,omitempty"`
	// Limit is the number of calls the runtime serves at once; 0 means any.
	Limit int `json:"limit,omitempty"`
	// Rate is the number of changes a second, and Seconds the duration, of
	// NodeChurn.
	Rate    float64 `json:"rate,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

// The orders to a node.
const (
	NodePopulate = "populate" // adds pods
	NodeShape    = "shape"    // sets the latency profile and the limit of calls
	NodeBurst    = "burst"    // resets the counters and changes pods in one step
	NodeHang     = "hang"     // makes the status calls of that many pods hang
	NodeChurn    = "churn"    // replaces containers at a steady rate, and answers at the end
	NodeReset    = "reset"    // resets the counters
	NodeStats    = "stats"    // answers with the counters
)

// RPC counts the calls of one kind at the runtime.
type RPC struct {
	Calls int64 `json:"calls"`
	// TimeMS is the sum of their durations, without the wait for the limit.
	TimeMS float64 `json:"timeMS"`
}

// Answer is the node's answer, with the counters since the last reset.
type Answer struct {
	Err string `json:"err,omitempty"`
	// Changed is the number of pods that a burst or a churn changed.
	Changed int            `json:"changed,omitempty"`
	RPCs    map[string]RPC `json:"rpcs,omitempty"`
	// PeakInFlight is the most calls that executed at once, PeakArrived the
	// most that executed or waited for the limit.
	PeakInFlight int     `json:"peakInFlight,omitempty"`
	PeakArrived  int     `json:"peakArrived,omitempty"`
	CPUSeconds   float64 `json:"cpuSeconds"`
	// Log has the new containers of a churn.
	Log []Arrival `json:"log,omitempty"`
}

// Usage is what a process has used, in total or between two marks.
type Usage struct {
	WallSeconds float64 `json:"wallSeconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	// Allocs counts heap allocations.
	Allocs uint64 `json:"allocs"`
}

// Mark is a time and the usage until then.
type Mark struct {
	at    time.Time
	usage Usage
}

// Now returns a mark of this process.
func Now() Mark {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Mark{at: time.Now(), usage: Usage{CPUSeconds: CPUSeconds(), Allocs: m.Mallocs}}
}

// Since returns what this process has used since an earlier mark.
func (m Mark) Since(earlier Mark) Usage {
	return Usage{
		WallSeconds: m.at.Sub(earlier.at).Seconds(),
		CPUSeconds:  m.usage.CPUSeconds - earlier.usage.CPUSeconds,
		Allocs:      m.usage.Allocs - earlier.usage.Allocs,
	}
}

// CPUSeconds returns the user and system time of this process.
func CPUSeconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}
