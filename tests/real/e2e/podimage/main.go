// The podimage program is the only file in the image of the lab's pods. Its first
// argument says whether it pauses, exits or uses up memory.
//
//	pod pause             until SIGTERM
//	pod exit CODE [TIME]  with that code, on SIGUSR1 or after the time
//	pod oom               on SIGUSR1, until the kernel kills it
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

	act, err := parse(os.Args[1:])
	if err == nil {
		err = os.WriteFile("/proc/self/comm", []byte("ready"), 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(64)
	}
	for s := range sigs {
		if s == syscall.SIGTERM {
			os.Exit(0)
		}
		act()
	}
}

// parse returns what to do on SIGUSR1.
func parse(args []string) (func(), error) {
	switch {
	case len(args) == 0 || args[0] == "pause":
		return func() {}, nil
	case args[0] == "oom":
		return eatMemory, nil
	case args[0] == "exit" && (len(args) == 2 || len(args) == 3):
		code, err := strconv.Atoi(args[1])
		exit := func() { os.Exit(code) }
		if err == nil && len(args) == 3 {
			var after time.Duration
			after, err = time.ParseDuration(args[2])
			time.AfterFunc(after, exit)
		}
		return exit, err
	}
	return nil, fmt.Errorf("unknown arguments %q", args)
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
