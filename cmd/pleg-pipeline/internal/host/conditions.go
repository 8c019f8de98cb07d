package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// manyDead is several times the number of dead containers and sandboxes that a kubelet
	// leaves on a node of 110 pods. Each is in every list.
	manyDead = 1000
	// mostDead is the ratio of dead to running containers that is a problem, if at least enoughDead
	// are dead.
	mostDead, enoughDead = 5, 200
)

// lasting returns troubles with the time at which each was first found. before are the troubles of
// the previous look.
func lasting(before, found []pleg.Trouble, now time.Time) []pleg.Trouble {
	for n := range found {
		t := &found[n]
		t.Since = now
		same := func(b pleg.Trouble) bool { return b.Cause == t.Cause && b.Subject == t.Subject && b.What == t.What }
		if i := slices.IndexFunc(before, same); i >= 0 {
			t.Since = before[i].Since
		}
	}
	return found
}

// notReady returns the conditions that the runtime reports as not ready.
func notReady(ctx context.Context, runtime grpc.ClientConnInterface) (all []pleg.Trouble, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := runtimeapi.NewRuntimeServiceClient(runtime).Status(ctx, &runtimeapi.StatusRequest{})
	for _, c := range answer.GetStatus().GetConditions() {
		t := pleg.Trouble{Problem: true, What: "is not ready", Detail: ": " + strings.TrimSpace(c.GetReason()+" "+c.GetMessage())}
		switch {
		case c.GetStatus():
			continue
		case c.GetType() == "RuntimeReady":
			t.Cause, t.Subject = string(verdict.RuntimeUnready), "the runtime"
		case c.GetType() == "NetworkReady":
			t.Cause, t.Subject = string(verdict.NetworkPlugin), "the network of the runtime"
		default:
			continue
		}
		all = append(all, t)
	}
	return all, err
}

// counted returns the troubles that the numbers of containers and addresses show.
func counted(pods []cache.Entry) (all []pleg.Trouble) {
	var running, exited, sandboxes, stopped, withoutIP, most int
	var name string
	for _, e := range pods {
		if e.Last == nil {
			continue
		}
		dead := 0
		for _, s := range e.Last.Sandboxes {
			sandboxes++
			switch {
			case !s.Ready:
				dead++
				stopped++
			case !s.HostNetwork && len(s.IPs) == 0:
				withoutIP++
			}
		}
		for _, c := range e.Last.Containers {
			switch c.State {
			case pleg.StateRunning:
				running++
			case pleg.StateExited:
				dead++
				exited++
			}
		}
		if dead > most {
			most, name = dead, e.Last.Namespace+"/"+e.Last.Name
		}
	}
	if dead := exited + stopped; dead >= manyDead || dead >= enoughDead && dead >= mostDead*running {
		all = append(all, pleg.Trouble{
			Cause: string(verdict.DeadContainers), Subject: "the runtime", What: "has many dead containers",
			Detail: fmt.Sprintf(": %d containers have exited and %d sandboxes are not ready, and all are in every list; most in %s, %d", exited, stopped, name, most),
		})
	}
	if withoutIP > 0 {
		all = append(all, pleg.Trouble{
			Cause: string(verdict.NetworkPlugin), Subject: "the network plugin", What: "gave no address",
			Detail: fmt.Sprintf(": %d of %d sandboxes are ready and have none", withoutIP, sandboxes),
		})
	}
	return all
}
