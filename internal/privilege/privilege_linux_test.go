package privilege_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/privilege"
)

// asChild makes the test binary drop its privileges and tell what is left.
const asChild = "PLEG_PIPELINE_TEST_DROP"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		child()
	}
	goleak.VerifyTestMain(m)
}

// child tells its process id, for it must not change, its arguments, and the
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

func TestDrop(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "one", "two")
	cmd.Env = []string{asChild + "=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pids := regexp.MustCompile(`(?m)^pid (\d+)$`).FindAllStringSubmatch(string(out), -1)
	if len(pids) != 2 || pids[0][1] != pids[1][1] {
		t.Errorf("process ids = %q, want that it runs twice, as one process", pids)
	}
	if !strings.Contains(string(out), "args [one two]") {
		t.Errorf("output = %s, want the arguments", out)
	}
	threads := strings.Count(string(out), "\nPid:")
	if threads < 2 {
		t.Errorf("%d threads, want more: otherwise this shows little", threads)
	}
	for _, want := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		if got := strings.Count(string(out), want); got != threads {
			t.Errorf("%q of %d threads out of %d:\n%s", want, got, threads, out)
		}
	}
	if bounds := strings.Count(string(out), "CapBnd:\t0000000000000000"); os.Geteuid() == 0 && bounds != threads {
		t.Errorf("an empty bounding set of %d threads out of %d", bounds, threads)
	}
}
