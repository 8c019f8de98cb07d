package containerindex_test

import (
	"slices"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
)

// TestProcesses: the kernel writes 0 for a process of another pid namespace. As an argument of
// kill it would mean this process.
func TestProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []int
	}{
		"one":                         {map[string]string{"cgroup.procs": "", "pod/cgroup.procs": "41\n"}, []int{41}},
		"below it too":                {map[string]string{"cgroup.procs": "", "pod/cgroup.procs": "41\n", "pod/init/cgroup.procs": "42\n43\n"}, []int{41, 42, 43}},
		"of other pid namespaces":     {map[string]string{"cgroup.procs": "", "pod/cgroup.procs": "0\n0\n41\n0\n"}, []int{41}},
		"only of other namespaces":    {map[string]string{"cgroup.procs": "", "pod/cgroup.procs": "0\n"}, nil},
		"the cgroup is gone":          {map[string]string{"cgroup.procs": "1\n"}, nil},
		"v1: the same in each":        {map[string]string{"cpu/cgroup.procs": "", "cpu/pod/cgroup.procs": "41\n", "pids/cgroup.procs": "", "pids/pod/cgroup.procs": "41\n"}, []int{41}},
		"v1: not in each":             {map[string]string{"cpu/cgroup.procs": "", "pids/cgroup.procs": "", "pids/pod/cgroup.procs": "41\n"}, []int{41}},
		"v1: of others, then of this": {map[string]string{"cpu/cgroup.procs": "", "cpu/pod/cgroup.procs": "0\n", "pids/cgroup.procs": "", "pids/pod/cgroup.procs": "41\n"}, []int{41}},
	} {
		root := t.TempDir()
		for path, text := range test.files {
			file(t, root, path, text)
		}
		got := containerindex.Host{Cgroup: root}.Processes("/pod")
		if slices.Sort(got); !slices.Equal(got, test.want) {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
		if all := (containerindex.Host{Cgroup: root}).Processes(""); all != nil {
			t.Errorf("%s: an unknown cgroup has %d", name, all)
		}
	}
}
