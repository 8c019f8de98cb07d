package server_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// Some tests run this test binary again as another process, with a role.
const (
	roleVariable   = "PLEG_TEST_ROLE"
	socketVariable = "PLEG_TEST_SOCKET"

	roleWatch  = "watch"  // prints one line per event
	roleListen = "listen" // prints why it cannot listen on the socket
)

func playRole(role string) (exit int) {
	ctx, path := context.Background(), os.Getenv(socketVariable)
	if role == roleListen {
		l, err := server.Listen(ctx, path)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		l.Close()
		return 0
	}
	c, err := client.New(path, client.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for ev, err := range c.Watch(ctx, client.WatchOptions{Name: "child", Replay: true}) {
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(ev.Type, ev.PodUID, ev.ContainerID, ev.Missed)
	}
	return 0
}

func roleCommand(t *testing.T, role, socket string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, socketVariable+"="+socket)
	return cmd
}
