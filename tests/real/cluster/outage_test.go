//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// requireVersion requires that the daemon serves metrics on the address of its pod, with this version.
func (c *cluster) requireVersion(version string) {
	c.t.Helper()
	process.Eventually(c.t, "metrics of "+version, func(ctx context.Context) error {
		pod, err := c.onlyPod(ctx)
		if err != nil {
			return err
		}
		page, err := process.Get(ctx, http.DefaultClient, "http://"+pod.Status.PodIP+":9713/metrics")
		if err == nil && !strings.Contains(page, fmt.Sprintf(`version=%q`, version)) {
			err = fmt.Errorf("not in the metrics:\n%s", page)
		}
		return err
	})
}

// doctor runs the program on the node, as docs/operations.md says.
const doctor = `/proc/$(pgrep -x pleg-pipeline)/root/pleg-pipeline doctor`

// requireOutage requires that the doctor names the runtime while it is down, and nothing once it is back.
func (c *cluster) requireOutage() {
	c.t.Helper()
	c.node.containerd.Kill()
	process.Eventually(c.t, "the doctor names the runtime", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "sh", "-c", doctor).CombinedOutput()
		if err == nil || !strings.Contains(string(out), containerdSocket) {
			return errors.Join(err, fmt.Errorf("the doctor says %s", out))
		}
		return nil
	})
	c.node.startContainerd()
	process.Eventually(c.t, "the doctor names nothing", func(ctx context.Context) error {
		_, err := process.Output(ctx, "sh", "-c", doctor)
		return err
	})
}
