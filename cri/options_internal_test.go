package cri

import (
	"log/slog"
	"reflect"
	"testing"
	"time"
)

// Each option has its own default.
func TestDefaults(t *testing.T) {
	o, err := Options{}.withDefaults()
	if err != nil || !reflect.DeepEqual(o.Logger, slog.New(slog.DiscardHandler)) {
		t.Errorf("got %+v, %v, want a silent logger", o, err)
	}
	if o.ListTimeout != 2*time.Minute || o.StatusTimeout != 2*time.Minute || o.ConnectTimeout != 5*time.Second || o.MaxRecvBytes != 16<<20 {
		t.Errorf("the options are %+v", o)
	}
}
