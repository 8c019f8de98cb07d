package doctor

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// Root gets no advice to become root.
func TestAllowed(t *testing.T) {
	const root = "root is denied, too: run this command on the node itself, outside of a container, or look for AppArmor or SELinux (dmesg)"
	for uid, want := range map[int]string{0: root, 1: verdict.NoPermission.Advice(), 1000: verdict.NoPermission.Advice()} {
		if advice := allowed(uid); advice != want || strings.Contains(advice, "sudo") != (uid > 0) {
			t.Errorf("user %d: %q, want %q", uid, advice, want)
		}
	}
}

// Each problem of a connection has its cause, and says what to do. A call that failed is named.
func TestCannotConnect(t *testing.T) {
	for problem, want := range map[cri.Problem]struct {
		cause           verdict.Cause
		summary, advice string
	}{
		cri.NoSocket:     {verdict.RuntimeStopped, "is stopped: s: why", verdict.RuntimeStopped.Advice() + "; if it runs, name the runtime's socket with --runtime-endpoint"},
		cri.SocketGone:   {verdict.Fallback, "cannot be reached: s: why", verdict.Fallback.Advice()},
		cri.NotSocket:    {verdict.RuntimeStopped, "is stopped: s: why", "name the runtime's socket with --runtime-endpoint"},
		cri.NoPermission: {verdict.NoPermission, "cannot be asked: s: why", allowed(os.Geteuid())},
		cri.NotListening: {verdict.RuntimeStopped, "is stopped: s: why", verdict.RuntimeStopped.Advice()},
		cri.NoConnection: {verdict.RuntimeStopped, "is stopped: s: why", verdict.RuntimeStopped.Advice()},
		cri.NotGRPC:      {verdict.RuntimeStopped, "is stopped: s: Version: why", verdict.RuntimeStopped.Advice()},
		cri.NotCRI:       {verdict.RuntimeStopped, "is stopped: s: Version: why", "enable the runtime's CRI plugin, or name the runtime's socket with --runtime-endpoint"},
		cri.Failing:      {verdict.RuntimeFails, "fails: s: Version: why", verdict.RuntimeFails.Advice()},
	} {
		f := cannotConnect("s", &cri.ConnectError{Endpoint: "s", Problem: problem, Reason: "why", Err: status.Error(codes.Internal, "broken")}, nil)
		evidence := "s: why"
		if strings.Contains(want.summary, "Version") {
			evidence += ": broken"
		}
		if f.Cause != want.cause || f.Summary != "the runtime "+want.summary || f.Advice != want.advice || f.Evidence != evidence || f.Severity != verdict.Problem {
			t.Errorf("problem %d: %s %s, %q, evidence %q, advice %q; want %+v", problem, f.Severity, f.Cause, f.Summary, f.Evidence, f.Advice, want)
		}
	}
}
