// The podimage program is the only file in the image of the lab's pods. Its first
// argument says whether it pauses, exits or uses up memory.
//
//	pod pause            until SIGTERM
//	pod exit CODE        with that code, on SIGUSR1
//	pod exit CODE AFTER  with that code, after that time
//	pod oom              on SIGUSR1, until the kernel kills it
//
// On SIGTERM it exits with code 0. Once it handles signals it changes its process
// name to "ready".
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGUSR1)

	act, after, err := parse(os.Args[1:])
	if err == nil {
		err = os.WriteFile("/proc/self/comm", []byte("ready"), 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(64)
	}
	var timer <-chan time.Time
	if after > 0 {
		timer = time.After(after)
	}
	for {
		select {
		case s := <-sigs:
			if s == syscall.SIGTERM {
				os.Exit(0)
			}
			act()
		case <-timer:
			act()
		}
	}
}

// parse returns what to do on SIGUSR1, and after which time to do it without the
// signal; 0 means never.
func parse(args []string) (func(), time.Duration, error) {
	if len(args) == 0 {
		args = []string{"pause"}
	}
	switch args[0] {
	case "pause":
		return func() {}, 0, nil
	case "oom":
		return eatMemory, 0, nil
	case "exit":
		return parseExit(args[1:])
	}
	return nil, 0, fmt.Errorf("unknown argument %q", args[0])
}

func parseExit(args []string) (func(), time.Duration, error) {
	if len(args) == 0 {
		return nil, 0, fmt.Errorf("exit: no code given")
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, 0, fmt.Errorf("exit code: %w", err)
	}
	var after time.Duration
	if len(args) > 1 {
		if after, err = time.ParseDuration(args[1]); err != nil {
			return nil, 0, fmt.Errorf("exit time: %w", err)
		}
	}
	return func() { os.Exit(code) }, after, nil
}

// eatMemory writes to each page, because only such pages count.
func eatMemory() {
	var kept [][]byte
	for {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		kept = append(kept, block)
		if len(kept) > 4096 {
			os.Exit(65) // there is no memory limit: protect the host
		}
	}
}
