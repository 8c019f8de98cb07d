package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Use is the usage of a process.
type Use struct {
	RSS int64 // in bytes
	CPU time.Duration
}

// UseOf returns the usage of the process with an id. It needs Linux.
func UseOf(pid int) (Use, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Use{}, err
	}
	// The second field is the name in parentheses. Field 14 is the time in user mode, 15 the
	// time in the kernel, in ticks, of which Linux counts 100 a second; 24 is the number
	// of resident pages.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	const user, system, pages = 14 - 3, 15 - 3, 24 - 3
	if len(fields) <= pages {
		return Use{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var n [3]int64
	for i, field := range []int{user, system, pages} {
		if n[i], err = strconv.ParseInt(fields[field], 10, 64); err != nil {
			return Use{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return Use{RSS: n[2] * int64(os.Getpagesize()), CPU: time.Duration(n[0]+n[1]) * time.Second / 100}, nil
}
