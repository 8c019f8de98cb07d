package probe

import (
	"runtime"
	"syscall"
	"time"
)

// Seen counts the events of one type.
type Seen struct {
	Count int `json:"count"`
	// LastMS is the arrival of the last event, in milliseconds from the beginning of the relist
	// that saw the first change of the window.
	LastMS float64 `json:"lastMS"`
}

// Arrival is one event and the time of its arrival.
type Arrival struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	// UnixNS is the wall clock, which both processes share.
	UnixNS int64 `json:"unixNS"`
}

// Report describes the events of a client in a window, and their cost.
type Report struct {
	// Done reports whether the window contains all its events.
	Done  bool            `json:"done"`
	Seen  map[string]Seen `json:"seen,omitempty"`
	Usage Usage           `json:"usage"`
	// Log contains all events of the window.
	Log []Arrival `json:"log,omitempty"`
}

// Usage is the usage of a process, in total or between two marks.
type Usage struct {
	WallSeconds float64 `json:"wallSeconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	// Allocs counts heap allocations.
	Allocs uint64 `json:"allocs"`
}

// mark is a time and the usage until then.
type mark struct {
	at    time.Time
	usage Usage
}

// now returns a mark of this process.
func now() mark {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return mark{at: time.Now(), usage: Usage{CPUSeconds: cpuSeconds(), Allocs: m.Mallocs}}
}

// since returns the usage of this process since an earlier mark.
func (m mark) since(earlier mark) Usage {
	return Usage{
		WallSeconds: m.at.Sub(earlier.at).Seconds(),
		CPUSeconds:  m.usage.CPUSeconds - earlier.usage.CPUSeconds,
		Allocs:      m.usage.Allocs - earlier.usage.Allocs,
	}
}

// cpuSeconds returns the user and system time of this process.
func cpuSeconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}
