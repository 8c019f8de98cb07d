package control

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Usage is what a process has used, in total or between two marks.
type Usage struct {
	WallSeconds float64 `json:"wallSeconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	// Allocs and AllocBytes count heap allocations.
	Allocs     uint64 `json:"allocs"`
	AllocBytes uint64 `json:"allocBytes"`
	// RSSBytes is the resident memory now.
	RSSBytes uint64 `json:"rssBytes"`
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
	return Mark{at: time.Now(), usage: Usage{
		CPUSeconds: CPUSeconds(), Allocs: m.Mallocs, AllocBytes: m.TotalAlloc, RSSBytes: rss(),
	}}
}

// Since returns what this process has used since an earlier mark.
func (m Mark) Since(earlier Mark) Usage {
	u := m.usage
	u.WallSeconds = m.at.Sub(earlier.at).Seconds()
	u.CPUSeconds -= earlier.usage.CPUSeconds
	u.Allocs -= earlier.usage.Allocs
	u.AllocBytes -= earlier.usage.AllocBytes
	return u
}

// CPUSeconds returns the user and system time of this process.
func CPUSeconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

// rss returns the resident memory in bytes, or zero if /proc does not have it.
func rss() uint64 {
	data, _ := os.ReadFile("/proc/self/statm")
	var total, resident uint64
	_, _ = fmt.Sscan(string(data), &total, &resident)
	return resident * uint64(os.Getpagesize())
}
