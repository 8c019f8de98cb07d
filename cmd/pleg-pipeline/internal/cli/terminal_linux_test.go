package cli_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// openTerminal returns a terminal, and what is written to it. Its end closes it.
func openTerminal(t *testing.T, columns, lines uint16) (*os.File, *transcript) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines})
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown, ended := newTranscript(), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(shown, master) // ends with EIO once nobody has the terminal open
	}()
	t.Cleanup(func() {
		_ = terminal.Close()
		<-ended
		_ = master.Close()
	})
	return terminal, shown
}

// TestPodsThatHangAreSeen has more pods than the terminal has lines.
func TestPodsThatHangAreSeen(t *testing.T) {
	t.Parallel()
	runtime, socket := socketPath(t), socketPath(t)
	simulated := start(t, newTranscript(), "simulate", "--socket", runtime, "--pods", "30", "--churn-rate", "0",
		"--fault", "ContainerStatus/hang@0s", "--fault-pod", "shop/web-0")
	simulated.stderr.await(t, "simulated runtime serves")
	daemon := start(t, newTranscript(), "run", "--quiet", "-r", "unix://"+runtime, "--socket", socket)
	daemon.stderr.await(t, "connected to")
	terminal, shown := openTerminal(t, 80, 10)
	watched := start(t, terminal, "pods", "--watch", "--connect", socket)
	text := shown.await(t, "(ContainerStatus of nginx)")
	table := strings.Split(text[strings.LastIndex(text, "NAMESPACE"):], "\n")
	if !strings.Contains(table[1], "web-0") {
		t.Errorf("the pod that hangs is not the first:\n%s", strings.Join(table, "\n"))
	}
	watched.stopAndWait(t)
	once := start(t, terminal, "pods", "--connect", socket)
	once.ends(t, cli.ExitOK)
	if want := "1 of 31 pods cannot be inspected: shop/web-0\n"; !strings.Contains(once.stderr.String(), want) {
		t.Errorf("stderr %q, want %q", once.stderr, want)
	}
	daemon.stopAndWait(t)
	simulated.stopAndWait(t)
}
