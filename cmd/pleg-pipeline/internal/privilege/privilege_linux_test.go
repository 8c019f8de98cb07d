package privilege_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/privilege"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const (
	// asChild makes the test binary drop its privileges and print what is left.
	asChild = "PLEG_PIPELINE_TEST_DROP"
	// tried marks a process that has executed itself, for package privilege.
	tried = "PLEG_PIPELINE_DROPPED"
	// asTried is the same for a process that has executed itself without effect.
	asTried = "PLEG_PIPELINE_TEST_TRIED"
	// wholeMachine turns the lack of the right to set privileges into a failure.
	wholeMachine = "PLEG_PIPELINE_TEST_WHOLE_MACHINE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asTried) != "" {
		if err := os.Setenv(tried, fmt.Sprint(os.Getpid())); err != nil {
			panic(err)
		}
	}
	if os.Getenv(asChild) != "" {
		child()
	}
	goleak.VerifyTestMain(m)
}

var noCapability = regexp.MustCompile(`(?m)^Cap(?:Inh|Prm|Eff):\t0+$`)

// child prints its process id, which must not change, its arguments, and the
// privileges of each of its threads.
func child() {
	fmt.Println("pid", os.Getpid())
	if err := privilege.Drop(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("args", os.Args[1:])
	files, err := filepath.Glob("/proc/self/task/*/status")
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		if readErr != nil {
			err = readErr
		}
		fmt.Printf("%s\n", text)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// command returns this program as a child.
func command(t *testing.T, environment ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "one", "two")
	cmd.Env = append(environment, asChild+"=1")
	return cmd
}

func TestDrop(t *testing.T) {
	t.Run("this user", func(t *testing.T) {
		out := dropped(t, command(t))
		if bounds := strings.Count(out, "CapBnd:\t0000000000000000"); os.Geteuid() == 0 && bounds != strings.Count(out, "CapBnd:") {
			t.Errorf("only %d threads have an empty bounding set:\n%s", bounds, out)
		}
	})
	t.Run("user with a capability", func(t *testing.T) {
		cmd := command(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: 65534, Gid: 65534},
			AmbientCaps: []uintptr{unix.CAP_NET_BIND_SERVICE},
		}
		dropped(t, cmd)
	})
}

// nothingLeft reports whether this process has nothing to drop, as in a restricted
// container.
func nothingLeft(t *testing.T) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	kit.Must(t, err)
	return len(noCapability.FindAll(status, -1)) == 3 && strings.Contains(string(status), "NoNewPrivs:\t1")
}

// dropped runs a child and checks that it has no privileges left.
func dropped(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	bytes, err := cmd.CombinedOutput()
	if cmd.Process == nil && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL)) {
		if os.Getenv(wholeMachine) != "" {
			t.Fatalf("%s is set, but these privileges cannot be set: %v", wholeMachine, err)
		}
		t.Skipf("only root of a whole machine can set these privileges: %v", err)
	}
	out := string(bytes)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pids := regexp.MustCompile(`(?m)^pid (\d+)$`).FindAllStringSubmatch(out, -1)
	if !nothingLeft(t) && (len(pids) != 2 || pids[0][1] != pids[1][1]) {
		t.Errorf("process ids = %q, want the same one twice", pids)
	}
	if !strings.Contains(out, "args [one two]") {
		t.Errorf("output = %s, want the arguments", out)
	}
	threads := strings.Count(out, "\nPid:")
	if threads < 2 {
		t.Errorf("%d threads, want more: the test must see several", threads)
	}
	for _, want := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		if got := strings.Count(out, want); got != threads {
			t.Errorf("%q: %d threads out of %d, want all:\n%s", want, got, threads, out)
		}
	}
	return out
}

// TestDropIsTriedOnce simulates a system that restores the privileges.
func TestDropIsTriedOnce(t *testing.T) {
	if nothingLeft(t) {
		return // Drop does not execute the program
	}
	out, err := command(t, asTried+"=1").CombinedOutput()
	if err == nil || strings.Count(string(out), "pid ") != 1 || !strings.Contains(string(out), "has some again") {
		t.Errorf("%v: %s, want an error at once that says why", err, out)
	}
}
