package podcache_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// exited returns the status of an exited container.
func exited(id string, code int32) *pleg.ContainerStatus {
	return &pleg.ContainerStatus{ID: pleg.ContainerID(id), State: pleg.StateExited, ExitCode: code}
}

func TestRemovedContainersAreKeptForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := podcache.New()
		require := func(id pleg.ContainerID, want *pleg.ContainerStatus) {
			t.Helper()
			if got := c.GetRemoved(id); got != want {
				t.Errorf("GetRemoved(%s) = %+v, want %+v", id, got, want)
			}
		}
		require("a", nil)
		a, b := exited("a", 1), exited("b", 2)
		c.KeepRemoved(a)
		time.Sleep(30 * time.Second)
		c.KeepRemoved(b)
		c.KeepRemoved(exited("a", 9)) // ignored: the first one counts
		require("a", a)
		require("b", b)
		time.Sleep(30 * time.Second)
		require("a", a)
		time.Sleep(time.Nanosecond)
		require("a", nil)
		require("b", b)
		again := exited("a", 4)
		c.KeepRemoved(again)
		require("a", again)
		time.Sleep(30 * time.Second)
		require("b", nil)
	})
}

func TestRemovedContainersAreBounded(t *testing.T) {
	c := podcache.New()
	const flood = 5000
	for n := range flood {
		c.KeepRemoved(exited(fmt.Sprint(n), 0))
	}
	kept := 0
	for n := range flood {
		if c.GetRemoved(pleg.ContainerID(fmt.Sprint(n))) != nil {
			kept++
		}
	}
	if kept != 1024 || c.GetRemoved("4999") == nil {
		t.Errorf("%d are kept, want the newest 1024", kept)
	}
}
