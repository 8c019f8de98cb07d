package httpserver_test

import (
	"net/http/httptest"
	"reflect"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Each parameter reaches what it is for.
func TestParametersOfEvents(t *testing.T) {
	r := httptest.NewRequest("GET", "/events?name=n&replay&bookmarks&namespace=shop&pod=a,b&selector=app%3Dweb&type=ContainerDied&sandboxes=0&network&words&since=epoch:7", nil)
	got, words, err := httpserver.SubscribeOptions(r)
	want := pipeline.SubscribeOptions{
		Name: "n", Replay: true, Bookmarks: true, After: pleg.Position{Epoch: "epoch", Seq: 7},
		Filter: pleg.Filter{
			Types: []pleg.EventType{pleg.ContainerDied}, Namespaces: []string{"shop"}, PodUIDs: []pleg.PodUID{"a", "b"},
			Selector: "app=web", OmitSandboxes: true, NetworkEvents: true,
		},
	}
	if err != nil || !words || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, words %v, %v\nwant %+v", got, words, err, want)
	}
}
