package conform

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProgramCommand is the command of this program that runs in the containers.
const ProgramCommand = "conform-container"

// mountPath is where the containers find this program.
const mountPath = "/pleg-conform"

// program is a folder with this program, to mount into containers.
type program struct {
	dir     string
	command []string // in the container
}

// newProgram copies the running program and, if it is linked dynamically, the
// libraries that it needs, so that it runs in a container of any image.
func newProgram() (_ program, err error) {
	self, err := os.Executable()
	if err != nil {
		return program{}, err
	}
	dir, err := os.MkdirTemp("", "pleg-conform-")
	if err != nil {
		return program{}, err
	}
	p := program{dir: dir, command: []string{mountPath + "/program"}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("prepare the program for containers: %w", err), p.remove())
		}
	}()
	if err := os.Chmod(dir, 0o777); err != nil { // containers write into it
		return program{}, err
	}
	if err := copyFile(self, filepath.Join(dir, "program")); err != nil {
		return program{}, err
	}
	libraries, interpreter, err := linked(self)
	if err != nil || interpreter == "" {
		return p, err
	}
	p.command = []string{mountPath + "/interpreter", "--library-path", mountPath, mountPath + "/program"}
	if err := copyFile(interpreter, filepath.Join(dir, "interpreter")); err != nil {
		return program{}, err
	}
	for _, library := range libraries {
		if err := copyFile(library, filepath.Join(dir, filepath.Base(library))); err != nil {
			return program{}, err
		}
	}
	return p, nil
}

func (p program) remove() error { return os.RemoveAll(p.dir) }

// exitedAt returns when a container wrote that it is about to exit.
func (p program) exitedAt(name string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
}

// libraryDirs are where glibc and musl look, without a configuration.
var libraryDirs = []string{"/lib64", "/usr/lib64", "/lib/*-linux-*", "/usr/lib/*-linux-*", "/lib", "/usr/lib"}

// linked returns the dynamic linker of a program and the libraries that it needs;
// empty for a static program.
func linked(path string) (libraries []string, interpreter string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, section := range f.Progs {
		if section.Type == elf.PT_INTERP {
			name, err := io.ReadAll(section.Open())
			if err != nil {
				return nil, "", err
			}
			interpreter = string(name[:max(0, len(name)-1)]) // without the final zero
		}
	}
	if interpreter == "" {
		return nil, "", nil
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, "", err
	}
	for _, name := range names {
		library, err := findLibrary(name)
		if err != nil {
			return nil, "", err
		}
		libraries = append(libraries, library)
	}
	return libraries, interpreter, nil
}

func findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs {
		if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("find the library %s: build the program with CGO_ENABLED=0", name)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// RunProgram is what a container does:
//
//	pause             until SIGTERM
//	exit CODE AFTER   after a time
//	note NAME AFTER   after a time, writes the time into the file NAME and exits
//	oom               until the kernel kills it
func RunProgram(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "pause":
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		<-terminated
		return nil
	case len(args) == 3 && args[0] == "exit":
		code, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		if err := pauseFor(args[2]); err != nil {
			return err
		}
		os.Exit(code)
	case len(args) == 3 && args[0] == "note":
		if err := pauseFor(args[2]); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(mountPath, args[1]), []byte(time.Now().Format(time.RFC3339Nano)), 0o644)
	case len(args) == 1 && args[0] == "oom":
		useMemory()
	}
	return fmt.Errorf("unknown arguments %q", args)
}

func pauseFor(text string) error {
	after, err := time.ParseDuration(text)
	time.Sleep(after)
	return err
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
