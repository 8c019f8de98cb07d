//go:build linux

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// TestRelistCost measures an idle relist beside real pods of two containers with 4 KB of annotations each, as
// "make -C bench relistcost" does beside simulated ones: with the kubelet's own code, and with the second step.
// KUBELET_E2E_SIZES are the numbers of pods.
func TestRelistCost(t *testing.T) {
	ctx := t.Context()
	bin := t.TempDir()
	unmodified, step := filepath.Join(bin, "relistcost"), filepath.Join(bin, "relistcost-step")
	build(ctx, t, "build", "-trimpath", "-o", unmodified, "./relistcost")
	build(ctx, t, "run", "./upstream", "-steps", "2", "go", "build", "-trimpath", "-o", step, "./relistcost")

	for text := range strings.FieldsSeq(cmp.Or(os.Getenv("KUBELET_E2E_SIZES"), "110")) {
		size, err := strconv.Atoi(text)
		kit.Must(t, err)
		t.Run("pods="+text, func(t *testing.T) { relistCost(t, size, unmodified, step) })
	}
}

func relistCost(t *testing.T, pods int, unmodified, step string) {
	const containers = 2
	ctx := t.Context()
	l, _ := startLab(ctx, t)
	large := map[string]string{"example.com/large": strings.Repeat("x", 4096)}
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("web-", i), Namespace: "production", HostNetwork: true, Annotations: large}
	}
	all, err := l.RunPods(ctx, specs)
	kit.Must(t, err)
	var g errgroup.Group
	g.SetLimit(8)
	for _, p := range all {
		g.Go(func() error {
			for i := range containers {
				spec := lab.ContainerSpec{Name: fmt.Sprint("container-", i), Program: lab.Pause(), Annotations: large}
				if _, err := l.RunContainer(ctx, p, spec); err != nil {
					return err
				}
			}
			return nil
		})
	}
	kit.Must(t, g.Wait())
	var table strings.Builder
	fmt.Fprintf(&table, "\n| %s | pods | changes | allocations | MB | CPU (ms) | peak heap (MB) | GCs | longest pause (ms) |\n", lab.DefaultRuntime())
	for range runs(t, 5) {
		for name, program := range map[string]string{"kubelet": unmodified, "second step": step} {
			row, err := exec.CommandContext(ctx, program, "-socket", strings.TrimPrefix(l.Endpoint(), "unix://"), "-pods", strconv.Itoa(pods), "-name", name).Output()
			kit.Must(t, err)
			table.Write(row)
		}
	}
	t.Log(table.String())
}

// build runs go beside the kubelet's sources.
func build(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = "../../../kubelet", append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build relistcost: %v\n%s", err, out)
	}
}
