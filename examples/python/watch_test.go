package python_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What runs is asked for again until it is known, and from then on each stream resumes after the last event.
// A stream that the daemon ends for another reason than a restart or a slow client is an error.
func TestWatchResumes(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("needs Python")
	}
	const watch = "WATCH /pleg.v1.PLEG/Watch "
	for args, want := range map[string]string{
		"": watch + "replay=True after nothing\nCONTAINER_STARTED shop/web a \nDISCONNECTED ended: UNAVAILABLE\n" +
			watch + "replay=True after nothing\nCONTAINER_STARTED shop/web b \nSYNCED 1 containers run\n",
		"x:y:7": watch + "replay=True after x:y:7\nCONTAINER_STARTED shop/web a \nDISCONNECTED ended: UNAVAILABLE\n" +
			watch + "replay=True after x:y:7\nCONTAINER_STARTED shop/web b \nSYNCED 1 containers run\n",
	} {
		want = "CONNECT unix:///run/pleg.sock\n" + want +
			"CONTAINER_STARTED shop/web c \n99 shop/web c \nCONTAINER_DIED shop/web b \nDISCONNECTED ended: RESOURCE_EXHAUSTED\n" +
			watch + "replay=False after e:9\nGAP shop/web  \nCONTAINER_STARTED shop/web d \n" +
			watch + "replay=False after e:17\nCONTAINER_STARTED shop/web f \nCONTAINER_REMOVED shop/web d \nSYNCED 1 containers run\nENDED ended: INTERNAL\n"
		cmd := exec.CommandContext(t.Context(), python, append([]string{"testdata/replayed.py", "/run/pleg.sock"}, strings.Fields(args)...)...)
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		cmd.Stderr = os.Stderr
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("watch.py %s: %v, printed\n%swant\n%s", args, err, out, want)
		}
	}
}
