package conform

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ProgramCommand is the command of this program that runs in the containers.
const ProgramCommand = "conform-container"

// mountPath is where the containers find this program.
const mountPath = "/pleg-conform"

// newProgram copies the running program to a new folder, to mount into containers.
func newProgram() (dir string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "pleg-conform-"); err != nil {
		return "", err
	}
	// Containers write into it.
	if err = errors.Join(os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, "program"), data, 0o755)); err != nil {
		return "", errors.Join(fmt.Errorf("prepare the program for containers: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// CheckProgram returns an error if the running program needs libraries: a container of any
// image cannot run it then.
func CheckProgram() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := elf.Open(self)
	if err != nil {
		return err
	}
	libraries, err := f.ImportedLibraries()
	if len(libraries) > 0 {
		err = fmt.Errorf("this program needs %s, which containers do not have: build it with CGO_ENABLED=0, as releases are", libraries)
	}
	return errors.Join(err, f.Close())
}

// RunProgram is what a container does after the name of its note:
//
//	pause             until SIGTERM
//	exit CODE AFTER   after a time, writes the time into the note and exits
//	oom               until the kernel kills it
func RunProgram(args []string) error {
	switch {
	case len(args) == 2 && args[1] == "pause":
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		<-terminated
		return nil
	case len(args) == 4 && args[1] == "exit":
		code, codeErr := strconv.Atoi(args[2])
		after, err := time.ParseDuration(args[3])
		if err := errors.Join(codeErr, err); err != nil {
			return err
		}
		time.Sleep(after)
		if err := os.WriteFile(filepath.Join(mountPath, args[0]), []byte(time.Now().Format(time.RFC3339Nano)), 0o644); err != nil {
			return err
		}
		os.Exit(code)
	case len(args) == 2 && args[1] == "oom":
		useMemory()
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// useMemory stops at 1 GiB, in case there is no limit.
func useMemory() {
	var kept [][]byte
	for range 1024 {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1 // only pages that were written count
		}
		kept = append(kept, block)
	}
	_ = kept
}
