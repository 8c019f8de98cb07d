package cli_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRunGivesUpItsCapabilities looks at each thread of a daemon at work.
func TestRunGivesUpItsCapabilities(t *testing.T) {
	for _, test := range []struct {
		args    []string
		dropped bool
	}{
		{[]string{"run", "--simulate=2"}, true},
		{[]string{"run", "--simulate=2", "--keep-capabilities"}, false},
	} {
		if !test.dropped && os.Geteuid() != 0 {
			continue // there is nothing to keep
		}
		p := spawn(t, test.args...)
		lines(t, bufio.NewReader(p.stdout), func(string) bool { return true })
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
		if err != nil || len(files) < 2 {
			t.Fatalf("threads: %v, %v, want some", files, err)
		}
		for _, file := range files {
			status, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			none := strings.Contains(string(status), "CapPrm:\t0000000000000000") && strings.Contains(string(status), "CapEff:\t0000000000000000")
			if none != test.dropped {
				t.Errorf("%v: %s:\n%s\nwant no capabilities: %v", test.args, file, status, test.dropped)
			}
		}
		p.signal(t, syscall.SIGTERM)
		_ = p.stdout.Close()
		_ = p.cmd.Wait()
	}
}
