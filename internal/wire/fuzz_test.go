package wire_test

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// FuzzEvent checks that an event of any version is the same after it is sent once
// more.
func FuzzEvent(f *testing.F) {
	var ev pleg.Event
	fill(&testing.T{}, reflect.ValueOf(&ev).Elem())
	for _, t := range []pleg.EventType{pleg.ContainerDied, pleg.PodSync, pleg.Synced, pleg.Gap} {
		ev.Type = t
		f.Add(encoded(f, wire.FromEvent(ev, "epoch")))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m plegv1.Event
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		first := wire.ToEvent(&m)
		if _, known := wire.FromEventType(first.Type); !known {
			first.Type = pleg.PodSync // the type of a newer version has a name here, but no number
		}
		if second := wire.ToEvent(wire.FromEvent(first, m.GetEpoch())); !reflect.DeepEqual(first, second) {
			t.Errorf("%+v, sent once more, is %+v", first, second)
		}
	})
}

// FuzzStatus does the same for statuses.
func FuzzStatus(f *testing.F) {
	var status pleg.PodStatus
	fill(&testing.T{}, reflect.ValueOf(&status).Elem())
	f.Add(encoded(f, wire.FromStatus(&status)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m plegv1.PodStatus
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		first := wire.ToStatus(&m)
		if second := wire.ToStatus(wire.FromStatus(first)); !reflect.DeepEqual(first, second) {
			t.Errorf("%+v, sent once more, is %+v", first, second)
		}
	})
}

func encoded(f *testing.F, m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return data
}
