package cache_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func ended(id string, code int32) *pleg.ContainerStatus {
	return &pleg.ContainerStatus{ID: pleg.ContainerID(id), State: pleg.StateExited, ExitCode: code}
}

func TestRemovedContainersAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(time.Minute)
		require := func(id pleg.ContainerID, want *pleg.ContainerStatus) {
			t.Helper()
			if got := c.GetRemoved(id); got != want {
				t.Errorf("GetRemoved(%s) = %+v, want %+v", id, got, want)
			}
		}
		require("a", nil)
		a, b := ended("a", 1), ended("b", 2)
		c.KeepRemoved(a)
		time.Sleep(30 * time.Second)
		c.KeepRemoved(b)
		c.KeepRemoved(ended("a", 9)) // repeated: the first call counts
		require("a", a)
		require("b", b)
		time.Sleep(30 * time.Second)
		require("a", a)
		time.Sleep(time.Nanosecond)
		require("a", nil)
		require("b", b)
		again := ended("a", 4)
		c.KeepRemoved(again)
		require("a", again)
		time.Sleep(30 * time.Second)
		require("b", nil)
	})
}

func TestRemovedContainersAreBounded(t *testing.T) {
	c := cache.New(time.Hour)
	const flood = 5000
	for n := range flood {
		c.KeepRemoved(ended(fmt.Sprint(n), 0))
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
