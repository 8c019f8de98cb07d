package dispatcher

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// No memory is kept for subscribers that have left, or for pods that are gone.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Options{History: 1, SlowAfter: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		in, ended := make(chan stage.Outcome), make(chan error, 1)
		go func() { ended <- d.Run(in, nil) }()
		for range 3 {
			s, err := d.Subscribe(pleg.SubscribeOptions{Name: "audit", Replay: true})
			if err != nil {
				t.Fatal(err)
			}
			in <- stage.Outcome{UID: "a", Pod: plegtest.Pod("a", ""), Events: []pleg.Event{{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "c"}}}
			time.Sleep(3 * time.Minute) // it is named as slow
			s.Close()
			synctest.Wait()
			d.callers.Put(s) // the reader has noticed late that the log has moved past its position
			in <- stage.Outcome{UID: "a", Events: []pleg.Event{{Type: pleg.ContainerDied, PodUID: "a", ContainerID: "c"}}}
		}
		in <- stage.Outcome{UID: "never seen"}
		synctest.Wait()
		if len(*d.subscribers.Load())+len(d.present)+len(d.warned) > 0 {
			t.Errorf("left: %v, %v, %v", *d.subscribers.Load(), d.present, d.warned)
		}
		close(in)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
