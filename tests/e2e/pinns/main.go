//go:build linux

// The pinns program makes the namespaces of a CRI-O sandbox and keeps them after
// its end. CRI-O's own pinns is written in C and is not part of its Go module; this
// one does what a lab needs.
//
//	pinns -d DIR -f NAME [-s SYSCTL=VALUE]... [--ipc[=host]] [--net[=host]] [--uts[=host]]
//
// The namespace KIND is bound to DIR/KINDns/NAME. With "host" it is the one that
// pinns was started in.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// kinds are the namespaces that pinns makes, by the name of their file in
// /proc/PID/ns.
var kinds = map[string]int{"ipc": unix.CLONE_NEWIPC, "net": unix.CLONE_NEWNET, "uts": unix.CLONE_NEWUTS}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pinns:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var sysctls, pinned []string
	unshare := 0
	flags := flag.NewFlagSet("pinns", flag.ContinueOnError)
	dir, name := flags.String("d", "", "folder"), flags.String("f", "", "name of the files")
	flags.Func("s", "sysctl", func(s string) error { sysctls = append(sysctls, s); return nil })
	for kind, flag := range kinds {
		flags.BoolFunc(kind, "namespace", func(value string) error {
			pinned = append(pinned, kind)
			if value != "host" {
				unshare |= flag
			}
			return nil
		})
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || *name == "" {
		return errors.New("-d and -f are missing")
	}
	// Namespaces belong to a thread. This one ends with the process.
	runtime.LockOSThread()
	if err := unix.Unshare(unshare); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for _, s := range sysctls {
		if err := setSysctl(s); err != nil {
			return err
		}
	}
	for _, kind := range pinned {
		if err := pin(kind, filepath.Join(*dir, kind+"ns"), *name); err != nil {
			return err
		}
	}
	return nil
}

func setSysctl(setting string) error {
	key, value, ok := strings.Cut(setting, "=")
	if !ok {
		return fmt.Errorf("sysctl %q has no value", setting)
	}
	return os.WriteFile(filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/")), []byte(value), 0)
}

// pin binds a namespace of this thread to a file.
func pin(kind, dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/"+kind, file, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the %s namespace to %s: %w", kind, file, err)
	}
	return nil
}
