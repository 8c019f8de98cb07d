package cache_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestList(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	broken := errors.New("broken")
	healthy, changing := &pleg.PodStatus{UID: "b-healthy"}, &pleg.PodStatus{UID: "c-changing"}

	c := cache.New(time.Minute)
	if got := c.List(); len(got) != 0 {
		t.Errorf("an empty cache lists %v", got)
	}
	c.Set(changing.UID, changing, nil, at(1))
	c.Set(healthy.UID, healthy, nil, at(2))
	c.Set("a-broken", nil, broken, at(3))
	c.Set("d-gone", &pleg.PodStatus{UID: "d-gone"}, nil, at(1))
	c.Delete("d-gone", at(4))
	c.Observe(at(5), []pleg.PodUID{changing.UID, "a-broken", "e-new"})

	want := []cache.Entry{
		{UID: "a-broken", Err: broken, CurrentAsOf: at(3)},
		{UID: healthy.UID, Status: healthy, CurrentAsOf: at(5)},
		{UID: changing.UID, Status: changing, CurrentAsOf: at(1)},
		{UID: "e-new", Err: cache.ErrNotInspected},
	}
	if got := c.List(); !reflect.DeepEqual(got, want) {
		t.Errorf("List() = %+v, want %+v", got, want)
	}
}
