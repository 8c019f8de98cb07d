//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of /proc/PID/stat (USER_HZ), the same on every Linux
// that Go supports.
const ticksPerSecond = 100

// cpuSeconds returns the CPU time of the containerd that serves the socket. Its
// arguments name a file in the socket's folder.
func cpuSeconds(socket string) float64 {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		program, args, _ := bytes.Cut(line, []byte{0})
		if filepath.Base(string(program)) == "containerd" && strings.Contains(string(args), filepath.Dir(socket)) {
			return processSeconds(filepath.Dir(file))
		}
	}
	return 0
}

// processSeconds returns the user and system time in a folder of /proc.
func processSeconds(dir string) float64 {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may have spaces. utime and stime are the twelfth
	// and thirteenth field after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticksPerSecond
}
