package verdict_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

var (
	nginx      = &pleg.Call{Method: "ContainerStatus", Container: "nginx"}
	list       = &pleg.Call{Method: "ListContainers"}
	errRefused = fmt.Errorf(`list pods: %w: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /run/s: connect: connection refused"`, pleg.ErrUnavailable)
	errBroken  = errors.New("rpc error: code = Internal desc = broken")
)

func overdue(name string, age time.Duration, hung bool) pleg.Inspection {
	return pleg.Inspection{UID: pleg.PodUID(name), Namespace: "shop", Name: name, Started: ago(age), Hung: hung, Call: nginx}
}

func quarantined(name string, age time.Duration, hung int) pleg.Quarantined {
	return pleg.Quarantined{UID: pleg.PodUID(name), Namespace: "shop", Name: name, Since: ago(age), Hung: hung, NextTry: noon.Add(9 * time.Second), Call: nginx}
}

// TestOf judges one status for each cause. The golden file has all that a reader of the verdict gets.
func TestOf(t *testing.T) {
	said := make(map[string]string)
	for name, test := range map[string]struct {
		change func(*pleg.Status)
		want   string
		advice string
	}{
		"healthy":      {func(*pleg.Status) {}, "OK: the node is healthy, its 110 pods answer", ""},
		"the only pod": {func(s *pleg.Status) { s.Relist.Pods = 1 }, "OK: the node is healthy, its pod answers", ""},
		"no list so far": {func(s *pleg.Status) {
			s.Relist, s.Healthy, s.Err = pleg.RelistStatus{}, false, errors.New("pleg has yet to be successful")
		}, "OK: waiting for the first list of pods", ""},
		"the first list hangs": {func(s *pleg.Status) { s.Relist = pleg.RelistStatus{Started: ago(4 * time.Second)} }, "WARNING: the runtime hangs since 11:59 (4.0s)", "SIGUSR1"},
		"no pods":              {func(s *pleg.Status) { s.Relist.Pods = 0 }, "OK: the node is healthy, it has no pods", ""},
		"no pods, and a full disk": {func(s *pleg.Status) {
			s.Relist.Pods = 0
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Disk = &nodestate.Disk{Since: ago(time.Hour), Path: "/images", Used: 80, Inodes: 96}
			})
		}, "PROBLEM: /images is almost full since 11:00 (60m): 20 % of its bytes and 4 % of its inodes are available", "crictl rmi"},
		"no pod has answered":  {func(s *pleg.Status) { s.Waiting = 110 }, "OK: waiting for the statuses of all pods", ""},
		"one pod has answered": {func(s *pleg.Status) { s.Waiting = 109 }, "OK: the node is healthy, its 110 pods answer", ""},
		"the only pod hangs": {func(s *pleg.Status) {
			s.Relist.Pods, s.Quarantined = 1, []pleg.Quarantined{quarantined("web-0", time.Minute, 2)}
		}, "PROBLEM: shop/web-0 hangs since 11:59 (60s, 2 attempts) in ContainerStatus of nginx", "shim"},
		"one of two pods hangs": {func(s *pleg.Status) {
			s.Relist.Pods, s.Quarantined = 2, []pleg.Quarantined{quarantined("web-0", time.Minute, 2)}
		}, "PROBLEM: shop/web-0 hangs since 11:59 (60s, 2 attempts) in ContainerStatus of nginx; the other pod answers", "shim"},
		"an inspection that others overtook is young": {
			func(s *pleg.Status) { s.Overdue = []pleg.Inspection{overdue("web-0", 3*time.Second-1, true)} }, "OK: the node is healthy, its 110 pods answer", "",
		},
		"an inspection takes as long as others of a runtime that is almost slow": {func(s *pleg.Status) {
			s.InspectionTook, s.Overdue = time.Second-1, []pleg.Inspection{overdue("web-0", 3500*time.Millisecond, false)}
		}, "WARNING: shop/web-0 is slow since 11:59 (3.5s) in ContainerStatus of nginx; the other 109 pods answer", "volumes"},
		"an inspection takes as long as others of a slow runtime": {func(s *pleg.Status) {
			s.InspectionTook, s.Overdue = time.Second, []pleg.Inspection{overdue("web-0", 3500*time.Millisecond, false)}
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Hour) })
		}, "WARNING: the runtime is slow since 11:00 (60m): half of the inspections take 1.0s or longer", "CPU and disk"},
		"one pod of a slow runtime hangs, another takes as long as others": {func(s *pleg.Status) {
			s.InspectionTook, s.Overdue, s.Quarantined = 2*time.Second, []pleg.Inspection{overdue("web-0", 6*time.Second, false)}, []pleg.Quarantined{quarantined("web-1", 7*time.Second, 2)}
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Hour) })
		}, "PROBLEM: shop/web-1 hangs since 11:59 (7.0s, 2 attempts) in ContainerStatus of nginx; the other 109 pods answer", "shim"},
		"a list fails once": {
			func(s *pleg.Status) {
				s.Relist.Failing, s.Relist.Failures, s.Relist.Err = ago(time.Second), 1, errBroken
			},
			"WARNING: the list of all pods fails since 11:59 (1.0s): broken", "journalctl",
		},
		"a stopped shim, and a container without a process": {func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Stuck = append(lostEnds(ago(2 * time.Minute))[:1], nodestate.Stuck{UID: "u", Namespace: "shop", Name: "db", Since: ago(9 * time.Second), Shim: &nodestate.Process{PID: 41, Name: "conmon", State: "T"}})
			})
		}, "PROBLEM: shop/db has a hung shim since 11:59 (9.0s): conmon, PID 41, is stopped by a signal", "kill -CONT 41"},
		"two pods are slow": {func(s *pleg.Status) {
			s.Overdue = []pleg.Inspection{overdue("web-0", 4*time.Second, false), overdue("web-1", 3*time.Second, false)}
		}, "WARNING: shop/web-0 and 1 more pod are slow since 11:59 (4.0s) in ContainerStatus of nginx; the other 108 pods answer", "volumes"},
		"two pods have no shim": {func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Stuck = []nodestate.Stuck{
					{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(9 * time.Second), Shim: &nodestate.Process{PID: 1}},
					{UID: "v", Namespace: "shop", Name: "web-1", Since: ago(8 * time.Second), Shim: &nodestate.Process{PID: 2}},
				}
			})
		}, "PROBLEM: shop/web-0 and 1 more pod have no shims since 11:59 (9.0s): PID 1 has ended, so that the runtime will not learn when the container ends", "delete the pod"},
		"two pods differ": {func(s *pleg.Status) {
			s.Contradictions = append(contradictions(50*time.Second), contradictions(40*time.Second)...)
			s.Contradictions[1].UID, s.Contradictions[1].Name = "v", "web-1"
		}, "WARNING: shop/web-0 and 1 more pod differ in lists and statuses since 11:59 (50s): container nginx is running in the lists and is missing in its status", "crictl inspect"},
		"a stopped shim, and many ends": {func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Stuck = append(lostEnds(ago(20 * time.Second))[:4], nodestate.Stuck{UID: "u", Namespace: "shop", Name: "db", Since: ago(9 * time.Second), Shim: &nodestate.Process{PID: 41, Name: "conmon", State: "t"}})
			})
		}, "PROBLEM: shop/db has a hung shim since 11:59 (9.0s): conmon, PID 41, is stopped by a debugger", "kill -CONT 41"},
		"the list hangs until the node is not healthy": {func(s *pleg.Status) {
			s.Healthy, s.Err, s.Relist.Started, s.Relist.Call = false, errors.New("pleg was last seen active 4m0s ago"), ago(4*time.Minute), list
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Unhealthy = ago(time.Minute) })
		}, "PROBLEM: the runtime hangs since 11:56 (4m) in ListContainers", "SIGUSR1"},
		"troubles of the node, two of the same rank": {func(s *pleg.Status) {
			s.Troubles = []pleg.Trouble{
				{Cause: "cause", Subject: "subject", What: "trouble", Detail: " detail", Since: ago(4 * time.Second)},
				{Cause: "network plugin", Subject: "the network", What: "is not ready", Detail: ": no plugin", Since: ago(time.Minute), Problem: true},
			}
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Disk = &nodestate.Disk{Since: ago(time.Hour), Path: "/images", Used: 80, Inodes: 96}
				n.Unread = []nodestate.Unread{{Since: ago(9 * time.Second), Client: &nodestate.Process{PID: 7, Name: "agent", State: "T"}, Bytes: 900}}
			})
		}, "PROBLEM: agent does not read from the runtime since 11:59 (9.0s): agent, PID 7, is stopped by a signal; 900 bytes are unread", "kill -CONT 7"},
		"a list begins": {func(s *pleg.Status) { s.Relist.Started = ago(2 * time.Second) }, "OK: the node is healthy, its 110 pods answer", ""},
		"a list runs for several periods": {
			func(s *pleg.Status) { s.Relist.Started, s.Relist.Call = ago(3*time.Second), list },
			"WARNING: the runtime hangs since 11:59 (3.0s) in ListContainers", "SIGUSR1",
		},
		"a list of a runtime without CRI": {
			func(s *pleg.Status) { s.Endpoint, s.Relist.Started = "", ago(3*time.Second) },
			"WARNING: the runtime hangs since 11:59 (3.0s)", "find out what the runtime waits for, and restart it",
		},
		"a list runs for five seconds": {
			func(s *pleg.Status) { s.Relist.Started = ago(5 * time.Second) },
			"PROBLEM: the runtime hangs since 11:59 (5.0s)", "SIGUSR1",
		},
		"the runtime is stopped by a signal": {func(s *pleg.Status) {
			s.Relist.Started, s.Relist.Call = ago(5*time.Second), list
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Process = &nodestate.Process{PID: 12, Name: "containerd", State: "T"} })
		}, "PROBLEM: the runtime hangs since 11:59 (5.0s) in ListContainers; containerd, PID 12, is stopped by a signal", "continue it (kill -CONT 12), and find out who stopped it"},
		"the runtime is stopped by a debugger": {func(s *pleg.Status) {
			s.Relist.Started = ago(5 * time.Second)
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Process = &nodestate.Process{PID: 12, Name: "containerd", State: "t"} })
		}, "PROBLEM: the runtime hangs since 11:59 (5.0s); containerd, PID 12, is stopped by a debugger", "kill -CONT 12"},
		"the runtime waits for a disk": {func(s *pleg.Status) {
			s.Relist.Started, s.Relist.Call = ago(5*time.Second), list
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Process = &nodestate.Process{PID: 12, Name: "crio", State: "D"} })
		}, "PROBLEM: the runtime hangs since 11:59 (5.0s) in ListContainers; crio, PID 12, waits in the kernel, state D", "no signal ends such a wait; then read the runtime's log"},
		"the runtime runs, and hangs": {func(s *pleg.Status) {
			s.Relist.Started, s.Relist.Call = ago(5*time.Second), list
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Process = &nodestate.Process{PID: 12, Name: "containerd", State: "S"} })
		}, "PROBLEM: the runtime hangs since 11:59 (5.0s) in ListContainers", "; kill -USR1 12 makes containerd log its goroutines; restart it"},
		"the runtime has ended": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = ago(time.Second), 1, errRefused
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Process = &nodestate.Process{PID: 12} })
		}, "PROBLEM: the runtime is stopped since 11:59 (1.0s): dial unix /run/s: connect: connection refused", "its process (PID 12) has ended: start the runtime (systemctl"},
		"an error with quotes": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = ago(4*time.Second), 4, errors.New(`rpc error: code = Internal desc = no file "x"`)
		}, `WARNING: the list of all pods fails since 11:59 (4.0s, 4 attempts): no file "x"`, "journalctl"},
		"lists time out": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err, s.Relist.Started, s.Relist.Call = ago(5*time.Minute), 2, errBroken, ago(time.Second), list
			s.Relist.FailedAfter, s.Relist.Took = 2*time.Minute, 2*time.Second // the last success was slow
		}, "PROBLEM: the runtime hangs since 11:55 (5m, 3 attempts) in ListContainers", "SIGUSR1"},
		"lists are slow": {func(s *pleg.Status) {
			s.Relist.Took, s.Relist.Started = 4*time.Second, ago(4*time.Second)
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Minute) })
		}, "WARNING: the runtime is slow since 11:59 (60s): the list of all pods takes up to 4.0s", "CPU and disk"},
		"a list takes less than a long period": {func(s *pleg.Status) {
			s.Relist.Took, s.Relist.Period = 2*time.Second, 5*time.Second
		}, "OK: the node is healthy, its 110 pods answer", ""},
		"a list takes longer than a short period": {func(s *pleg.Status) {
			s.Relist.Took = 2 * time.Second
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Minute) })
		}, "WARNING: the runtime is slow since 11:59 (60s): the list of all pods takes up to 2.0s", "CPU and disk"},
		"a list takes a second": {func(s *pleg.Status) {
			s.Relist.Took, s.Relist.Period = time.Second, time.Second/10
		}, "OK: the node is healthy, its 110 pods answer", ""},
		"a list takes seconds of a long period": {func(s *pleg.Status) {
			s.Relist.Took, s.Relist.Period = 4*time.Second, 5*time.Second
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Minute) })
		}, "WARNING: the runtime is slow since 11:59 (60s): the list of all pods takes up to 4.0s", "CPU and disk"},
		"a list of the last minute was slow": {func(s *pleg.Status) {
			s.Relist.Took, s.Relist.Longest, s.Relist.Started = time.Second/2, 4*time.Second, ago(7*time.Second)
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Minute) })
		}, "WARNING: the runtime is slow since 11:59 (60s): the list of all pods takes up to 4.0s", "CPU and disk"},
		"a list runs twice as long as the slow last one": {func(s *pleg.Status) {
			s.Relist.Took, s.Relist.Started, s.Relist.Call = 4*time.Second, ago(8*time.Second), list
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Minute) })
		}, "PROBLEM: the runtime hangs since 11:59 (8.0s) in ListContainers", "SIGUSR1"},
		"lists fail": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = ago(4*time.Second), 4, errBroken
		}, "WARNING: the list of all pods fails since 11:59 (4.0s, 4 attempts): broken", "journalctl"},
		"lists fail, and the runtime runs": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = ago(4*time.Second), 4, errBroken
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Process = &nodestate.Process{PID: 12, Name: "containerd", State: "S"} })
		}, "WARNING: the list of all pods fails since 11:59 (4.0s, 4 attempts): broken", "if it names a pod, remove that pod"},
		"lists fail, with a long period": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err, s.Relist.Period = ago(22*time.Second), 5, errBroken, 5*time.Second
		}, "PROBLEM: the list of all pods fails since 11:59 (22s, 5 attempts): broken", "journalctl"},
		"lists failed, and hang": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err, s.Relist.Started, s.Relist.Call = ago(8*time.Second), 3, errBroken, ago(4*time.Second), list
		}, "PROBLEM: the runtime hangs since 11:59 (8.0s, 4 attempts) in ListContainers", "SIGUSR1"},
		"lists failed, and one takes three seconds": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err, s.Relist.Started, s.Relist.Call = ago(8*time.Second), 3, errBroken, ago(3*time.Second), list
		}, "PROBLEM: the runtime hangs since 11:59 (8.0s, 4 attempts) in ListContainers", "SIGUSR1"},
		"a list fails after three seconds": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err, s.Relist.FailedAfter = ago(4*time.Second), 1, errBroken, 3*time.Second
		}, "WARNING: the runtime hangs since 11:59 (4.0s)", "SIGUSR1"},
		"the runtime is gone": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = ago(time.Second), 1, errRefused
		}, "PROBLEM: the runtime is stopped since 11:59 (1.0s): dial unix /run/s: connect: connection refused", "start the runtime"},
		"the runtime is gone, and no reason is known": {func(s *pleg.Status) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = ago(time.Second), 1, pleg.ErrUnavailable
		}, "PROBLEM: the runtime is stopped since 11:59 (1.0s)", "start the runtime"},
		"an inspection is slow": {
			func(s *pleg.Status) {
				s.Overdue = []pleg.Inspection{overdue("web-0", 5*time.Second-time.Millisecond, false)}
			},
			"WARNING: shop/web-0 is slow since 11:59 (5.0s) in ContainerStatus of nginx; the other 109 pods answer", "volumes",
		},
		"an inspection takes three seconds": {
			func(s *pleg.Status) { s.Overdue = []pleg.Inspection{overdue("web-0", 3*time.Second, false)} },
			"WARNING: shop/web-0 is slow since 11:59 (3.0s) in ContainerStatus of nginx; the other 109 pods answer", "volumes",
		},
		"an inspection takes five seconds": {
			func(s *pleg.Status) { s.Overdue = []pleg.Inspection{overdue("web-0", 5*time.Second, false)} },
			"PROBLEM: shop/web-0 hangs since 11:59 (5.0s) in ContainerStatus of nginx; the other 109 pods answer", "shim",
		},
		"an inspection hangs": {
			func(s *pleg.Status) { s.Overdue = []pleg.Inspection{overdue("web-0", 4*time.Second, true)} },
			"PROBLEM: shop/web-0 hangs since 11:59 (4.0s) in ContainerStatus of nginx; the other 109 pods answer", "shim",
		},
		"an inspection hangs again": {func(s *pleg.Status) {
			before := quarantined("web-0", 24*time.Minute, 8)
			before.Call = &pleg.Call{Method: "PodSandboxStatus"} // of the previous attempt
			s.Overdue, s.Quarantined = []pleg.Inspection{overdue("web-0", 4*time.Second, true)}, []pleg.Quarantined{before}
		}, "PROBLEM: shop/web-0 hangs since 11:36 (24m, 9 attempts) in ContainerStatus of nginx; the other 109 pods answer", "shim"},
		"a pod waits in quarantine": {
			func(s *pleg.Status) { s.Quarantined = []pleg.Quarantined{quarantined("web-0", 24*time.Minute, 9)} },
			"PROBLEM: shop/web-0 hangs since 11:36 (24m, 9 attempts) in ContainerStatus of nginx; the other 109 pods answer", "shim",
		},
		"a shim is stopped": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(9 * time.Second), Shim: &nodestate.Process{PID: 41, Name: "containerd-shim", State: "T"}}}
				})
			},
			"PROBLEM: shop/web-0 has a hung shim since 11:59 (9.0s): containerd-shim, PID 41, is stopped by a signal", "continue it (kill -CONT 41), and find out who stopped it; deleting the pod waits for it",
		},
		"a shim has ended": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(9 * time.Second), Shim: &nodestate.Process{}}}
				})
			},
			"PROBLEM: shop/web-0 has no shim since 11:59 (9.0s): it has ended, so that the runtime will not learn when the container ends", "delete the pod, which makes a new one; crictl -t 1m stop ID ends a container",
		},
		"stopped shims, one with a container that ended": {
			func(s *pleg.Status) {
				shim := &nodestate.Process{PID: 41, Name: "containerd-shim", State: "D"}
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(9 * time.Second), Shim: shim, Container: "nginx", ID: "c1"}, {UID: "v", Since: noon, Shim: shim}}
				})
			},
			"PROBLEM: shop/web-0 and 1 more pod have hung shims since 11:59 (9.0s): containerd-shim, PID 41, waits in the kernel, state D; nginx has ended, and the runtime calls it running",
			"dmesg, ps -eLo pid,stat,wchan,comm); no signal ends such a wait. Or its cgroup is frozen (/proc/41/cgroup names it): thaw it. Deleting the pod waits for the shim, PID 41",
		},
		"two containers of a pod without a process": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{
						{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(9 * time.Second), Container: "nginx", ID: "c1"},
						{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(8 * time.Second), Container: "log", ID: "c2"},
					}
				})
			},
			"WARNING: shop/web-0 has a container without a process since 11:59 (9.0s): nginx has ended, and the runtime calls it running", "look again in a minute",
		},
		"an end that the runtime did not learn": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(time.Minute - time.Millisecond), Container: "nginx", ID: "c1"}}
				})
			},
			"WARNING: shop/web-0 has a container without a process since 11:59 (59s): nginx has ended, and the runtime calls it running", "look again in a minute, as a busy runtime reports ends late; only then stop the container (crictl -t 1m stop c1)",
		},
		"and does not learn": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(time.Minute), Container: "nginx", ID: "c1"}}
				})
			},
			"PROBLEM: shop/web-0 has a container without a process since 11:59 (60s): nginx has ended, and the runtime calls it running", "delete the pod, or stop the container (crictl -t 1m stop c1",
		},
		"two containers of a pod differ": {
			func(s *pleg.Status) {
				s.Contradictions = append(contradictions(59*time.Second), contradictions(time.Second*30)...)
			},
			"WARNING: shop/web-0 differs in lists and statuses since 11:59 (59s): container nginx is running in the lists and is missing in its status", "crictl inspect",
		},
		"a sandbox differs": {
			func(s *pleg.Status) {
				s.Contradictions = contradictions(time.Minute)
				s.Contradictions[0].Sandbox, s.Contradictions[0].Missing, s.Contradictions[0].Status = true, false, pleg.StateExited
			},
			"PROBLEM: shop/web-0 differs in lists and statuses since 11:59 (60s): its sandbox is running in the lists and is exited in its status", "crictl inspect",
		},
		"two ends": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{
						{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(9 * time.Second), Container: "nginx", ID: "c1"},
						{UID: "v", Namespace: "shop", Name: "web-1", Since: ago(8 * time.Second), Container: "nginx", ID: "c2"},
					}
				})
			},
			"WARNING: shop/web-0 and 1 more pod have containers without processes since 11:59 (9.0s): nginx has ended, and the runtime calls it running", "look again in a minute",
		},
		"many ends": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) { n.Stuck = lostEnds(ago(20 * time.Second)) })
			},
			"WARNING: the runtime reports no ends since 11:59 (20s): the processes of 24 containers have ended, and the runtime calls them running; the first is nginx of shop/web-0", "SIGUSR1",
		},
		"few ends that are many, for a minute": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) { n.Stuck = lostEnds(ago(time.Minute))[:3] })
			},
			"PROBLEM: the runtime reports no ends since 11:59 (60s): the processes of 3 containers have ended, and the runtime calls them running; the first is nginx of shop/web-0", "SIGUSR1",
		},
		"many ends for long": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) { n.Stuck = lostEnds(ago(2 * time.Minute)) })
			},
			"PROBLEM: the runtime reports no ends since 11:58 (2m): the processes of 24 containers have ended, and the runtime calls them running; the first is nginx of shop/web-0", "SIGUSR1",
		},
		"a conmon has ended": {
			func(s *pleg.Status) {
				nodestate.Change(&s.Details, func(n *nodestate.State) {
					n.Stuck = []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web-0", Since: ago(9 * time.Second), Shim: &nodestate.Process{PID: 41}}}
				})
			},
			"PROBLEM: shop/web-0 has no shim since 11:59 (9.0s): PID 41 has ended, so that the runtime will not learn when the container ends", "delete the pod, which makes a new one; crictl -t 1m stop ID ends a container",
		},
		"a client does not read": {func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Unread = []nodestate.Unread{{Since: ago(9 * time.Second), Client: &nodestate.Process{PID: 7, Name: "agent", State: "T"}, Bytes: 900}}
			})
		}, "PROBLEM: agent does not read from the runtime since 11:59 (9.0s): agent, PID 7, is stopped by a signal; 900 bytes are unread", "continue it (kill -CONT 7) or end it: a runtime that sends it events waits for it, and soon no pod starts"},
		"clients do not read": {func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Unread = []nodestate.Unread{{Since: ago(9 * time.Second), Client: &nodestate.Process{PID: 8, Name: "other", State: "S"}, Bytes: 900}, {Bytes: 90}}
			})
		}, "WARNING: other and 1 more client do not read from the runtime since 11:59 (9.0s): PID 8; 900 bytes are unread", "find out why"},
		"an unknown client does not read": {func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Unread = []nodestate.Unread{{Since: ago(9 * time.Second), Bytes: 900}} })
		}, "WARNING: a client does not read from the runtime since 11:59 (9.0s); 900 bytes are unread", "or end it: a runtime that sends it events waits for it"},
		"a disk is full": {func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) {
				n.Disk = &nodestate.Disk{Since: ago(9 * time.Second), Path: "/var/lib/images", Used: 97, Inodes: 10}
			})
		}, "PROBLEM: /var/lib/images is almost full since 11:59 (9.0s): 3 % of its bytes and 90 % of its inodes are available", "crictl rmi"},
		"since yesterday": {
			func(s *pleg.Status) { s.Quarantined = []pleg.Quarantined{quarantined("web-0", 20*time.Hour, 400)} },
			"PROBLEM: shop/web-0 hangs since Feb 28 16:00 (20h, 400 attempts) in ContainerStatus of nginx; the other 109 pods answer", "shim",
		},
		"since yesterday evening": {
			func(s *pleg.Status) { s.Quarantined = []pleg.Quarantined{quarantined("web-0", 19*time.Hour, 400)} },
			"PROBLEM: shop/web-0 hangs since 17:00 (19h, 400 attempts) in ContainerStatus of nginx; the other 109 pods answer", "shim",
		},
		"three pods hang": {func(s *pleg.Status) {
			s.Quarantined = []pleg.Quarantined{quarantined("a", time.Minute, 2), quarantined("b", time.Hour, 9), quarantined("c", time.Minute, 1)}
		}, "PROBLEM: shop/b and 2 more pods hang since 11:00 (60m, 9 attempts) in ContainerStatus of nginx; the other 107 pods answer", "shim"},
		"half of the pods hang": {func(s *pleg.Status) {
			s.Relist.Pods, s.Quarantined = 6, []pleg.Quarantined{quarantined("a", time.Hour, 9), quarantined("b", time.Minute, 2), quarantined("c", time.Minute, 1)}
		}, "PROBLEM: the runtime does not answer inspections since 11:00 (60m, 9 attempts): 3 of 6 pods wait, the longest is shop/a in ContainerStatus of nginx", "CPU and disk"},
		"fewer than half of the pods hang": {func(s *pleg.Status) {
			s.Relist.Pods, s.Quarantined = 7, []pleg.Quarantined{quarantined("a", time.Hour, 9), quarantined("b", time.Minute, 2), quarantined("c", time.Minute, 1)}
		}, "PROBLEM: shop/a and 2 more pods hang since 11:00 (60m, 9 attempts) in ContainerStatus of nginx; the other 4 pods answer", "shim"},
		"the only two pods hang": {func(s *pleg.Status) {
			s.Relist.Pods, s.Quarantined = 2, []pleg.Quarantined{quarantined("a", time.Hour, 9), quarantined("b", time.Minute, 2)}
		}, "PROBLEM: shop/a and 1 more pod hang since 11:00 (60m, 9 attempts) in ContainerStatus of nginx", "shim"},
		"no inspection returns": {func(s *pleg.Status) {
			for n := range 8 {
				s.Overdue = append(s.Overdue, overdue(fmt.Sprint("p", n), time.Duration(12-n)*time.Second, false))
			}
		}, "PROBLEM: the runtime does not answer inspections since 11:59 (12s): 8 of 110 pods wait, the longest is shop/p0 in ContainerStatus of nginx", "CPU and disk"},
		"inspections are slow": {
			func(s *pleg.Status) {
				s.InspectionTook = 2 * time.Second
				nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Hour) })
			},
			"WARNING: the runtime is slow since 11:00 (60m): half of the inspections take 2.0s or longer", "CPU and disk",
		},
		"inspections take almost a second": {
			func(s *pleg.Status) { s.InspectionTook = time.Second - 1 }, "OK: the node is healthy, its 110 pods answer", "",
		},
		"inspections of a slow runtime take longer than others": {func(s *pleg.Status) {
			s.InspectionTook, s.Overdue = 2*time.Second, []pleg.Inspection{overdue("a", 7*time.Second, false), overdue("b", 7*time.Second, false), overdue("c", 7*time.Second, false)}
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Hour) })
		}, "WARNING: the runtime is slow since 11:00 (60m): half of the inspections take 2.0s or longer", "CPU and disk"},
		"an inspection fails": {
			func(s *pleg.Status) {
				s.Failed = []pleg.Failed{{UID: "u1", Namespace: "shop", Name: "web-0", Since: ago(time.Minute), Err: fmt.Errorf("inspect pod shop/web-0 (u1): ContainerStatus of nginx c1: %w", errBroken)}}
			},
			"PROBLEM: shop/web-0 cannot be inspected since 11:59 (60s): ContainerStatus of nginx c1: broken", "journalctl",
		},
		"inspections fail": {
			func(s *pleg.Status) {
				s.Failed = []pleg.Failed{{UID: "u1", Namespace: "shop", Name: "web-0", Since: ago(4 * time.Second), Err: errBroken}, {UID: "u2", Since: ago(time.Second), Err: errBroken}}
			},
			"WARNING: shop/web-0 and 1 more pod cannot be inspected since 11:59 (4.0s): broken", "journalctl",
		},
		"an inspection has failed for three seconds": {
			func(s *pleg.Status) {
				s.Failed = []pleg.Failed{{UID: "u1", Namespace: "shop", Name: "web-0", Since: ago(3 * time.Second), Err: errBroken}}
			},
			"WARNING: shop/web-0 cannot be inspected since 11:59 (3.0s): broken", "journalctl",
		},
		"a list and a status differ": {
			func(s *pleg.Status) { s.Contradictions = contradictions(time.Minute - time.Millisecond) },
			"WARNING: shop/web-0 differs in lists and statuses since 11:59 (59s): container nginx is running in the lists and is missing in its status", "crictl inspect",
		},
		"they differ for a minute": {
			func(s *pleg.Status) { s.Contradictions = contradictions(time.Minute) },
			"PROBLEM: shop/web-0 differs in lists and statuses since 11:59 (60s): container nginx is running in the lists and is missing in its status", "crictl inspect",
		},
		"they have just begun to differ": {
			func(s *pleg.Status) { s.Contradictions = contradictions(10*time.Second - time.Millisecond) },
			"OK: the node is healthy, its 110 pods answer", "",
		},
		"an inspection has just failed": {
			func(s *pleg.Status) {
				s.Failed = []pleg.Failed{{UID: "u1", Since: ago(2 * time.Second), Err: errBroken}}
			},
			"OK: the node is healthy, its 110 pods answer", "",
		},
		"one pod hangs, another is slow": {func(s *pleg.Status) {
			s.Overdue = []pleg.Inspection{overdue("web-0", 4*time.Second, true), overdue("web-1", 4*time.Second, false)}
		}, "PROBLEM: shop/web-0 hangs since 11:59 (4.0s) in ContainerStatus of nginx; the other 108 pods answer", "shim"},
		"one pod hangs, another has been slow for longer": {func(s *pleg.Status) {
			s.Overdue = []pleg.Inspection{overdue("web-0", 4*time.Second, false), overdue("web-1", 3*time.Second, true)}
		}, "PROBLEM: shop/web-1 hangs since 11:59 (3.0s) in ContainerStatus of nginx; the other 108 pods answer", "shim"},
		"everything is very slow": {func(s *pleg.Status) {
			s.InspectionTook, s.Relist.Took = 20*time.Second, 6*time.Second
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(time.Hour) })
			for n := range 8 { // these inspections end
				s.Overdue = append(s.Overdue, overdue(fmt.Sprint("p", n), time.Duration(12-n)*time.Second, false))
			}
		}, "WARNING: the runtime is slow since 11:00 (60m): the list of all pods takes up to 6.0s; half of the inspections take 20s or longer", "CPU and disk"},
		"a pod hangs on a slow runtime": {func(s *pleg.Status) {
			s.InspectionTook, s.Overdue = 2*time.Second, []pleg.Inspection{overdue("web-0", 6*time.Second, true), overdue("web-1", 4*time.Second, false)}
		}, "PROBLEM: shop/web-0 hangs since 11:59 (6.0s) in ContainerStatus of nginx; the other 109 pods answer", "shim"},
		"a slow runtime no longer answers": {func(s *pleg.Status) {
			s.InspectionTook, s.Overdue = 2*time.Second, []pleg.Inspection{overdue("a", 8*time.Second, false), overdue("b", 8*time.Second, false), overdue("c", 8*time.Second, false)}
		}, "PROBLEM: the runtime does not answer inspections since 11:59 (8.0s): 3 of 110 pods wait, the longest is shop/a in ContainerStatus of nginx", "CPU and disk"},
		"pods and lists are slow": {func(s *pleg.Status) {
			s.Relist.Took = 9 * time.Second
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(5 * time.Second) })
			s.Overdue = []pleg.Inspection{overdue("a", 8*time.Second, true), overdue("b", 8*time.Second, true), overdue("c", 8*time.Second, false)}
		}, "PROBLEM: the runtime does not answer inspections since 11:59 (8.0s): 3 of 110 pods wait, the longest is shop/a in ContainerStatus of nginx", "CPU and disk"},
		"a fallback": {
			func(s *pleg.Status) {
				s.Degraded = errors.New("lists work in portions")
				nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Degraded = ago(time.Hour) })
			},
			"PROBLEM: the runtime works by a fallback since 11:00 (60m): lists work in portions", "journalctl",
		},
		"a list is too large": {
			func(s *pleg.Status) {
				s.Degraded = fmt.Errorf("%w: list containers: 18 MiB; the largest pods are shop/web 17 MiB", pleg.ErrListTooLarge)
				nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Degraded = ago(time.Hour) })
			},
			"PROBLEM: the list of all pods is too large since 11:00 (60m), so pods are listed in portions: list containers: 18 MiB; the largest pods are shop/web 17 MiB", "reduce the annotations",
		},
		"unhealthy": {
			func(s *pleg.Status) {
				s.Healthy, s.Err = false, errors.New("no inspection has succeeded for 4m0s")
				nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Unhealthy = ago(time.Minute) })
			},
			"PROBLEM: the node is not healthy since 11:59 (60s): no inspection has succeeded for 4m0s", "SIGUSR1",
		},
		"unhealthy, and a pod is slow": {func(s *pleg.Status) {
			s.Healthy, s.Err, s.Overdue = false, errors.New("no inspection has succeeded for 4m0s"), []pleg.Inspection{overdue("web-0", 4*time.Second, false)}
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Unhealthy = ago(time.Minute) })
		}, "PROBLEM: the node is not healthy since 11:59 (60s): no inspection has succeeded for 4m0s", "SIGUSR1"},
		"a list and a pod hang": {func(s *pleg.Status) {
			s.Relist.Started, s.Quarantined = ago(time.Minute), []pleg.Quarantined{quarantined("web-0", time.Hour, 2)}
		}, "PROBLEM: the runtime hangs since 11:59 (60s)", "SIGUSR1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := pleg.Status{At: noon, Endpoint: "unix:///run/s", Healthy: true, Relist: pleg.RelistStatus{Success: ago(time.Second), Period: time.Second, Pods: 110}}
			test.change(&s)
			v := verdict.Of(s)
			if v.Text != test.want {
				t.Errorf("got  %q\nwant %q", v.Text, test.want)
			}
			if word := strings.ToLower(strings.SplitN(test.want, ":", 2)[0]); string(v.Severity) != word {
				t.Errorf("severity %q, want %q", v.Severity, word)
			}
			if text := v.Lasting(); strings.Contains(text, "(") || !strings.HasPrefix(v.Text, text[:min(len(text), 20)]) {
				t.Errorf("the lasting text is %q", text)
			}
			if len(v.Findings) > 0 && v.Findings[0].Since.IsZero() {
				t.Error("the finding has no age")
			}
			if test.advice != "" && !strings.Contains(v.Findings[0].Advice, test.advice) {
				t.Errorf("advice %q, want %q", v.Findings[0].Advice, test.advice)
			}
			said[name] = whole(v)
		})
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(said)) {
		fmt.Fprintf(&all, "%s\n%s", name, said[name])
	}
	kit.Golden(t, "testdata/verdicts.txt", all.String())
}

// whole returns the texts and findings of a verdict, with times relative to noon.
func whole(v verdict.Verdict) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\t%s\n", v.Full())
	if brief := v.Brief(); brief != v.Text {
		fmt.Fprintf(&text, "\tbrief: %s\n", brief)
	}
	if len(v.Findings) > 0 && v.Good != "the node is healthy, its 110 pods answer" {
		fmt.Fprintf(&text, "\tgood: %s\n", v.Good)
	}
	for _, f := range v.Findings {
		fmt.Fprintf(&text, "\t- %s, %s, since %v: %s|%s|%s|%s", f.Cause, f.Severity, noon.Sub(f.Since), f.Subject, f.What, f.Detail, f.Rest)
		if f.AtLeast || f.Attempts > 0 {
			fmt.Fprintf(&text, ", %d attempts, at least: %v", f.Attempts, f.AtLeast)
		}
		if !f.NextTry.IsZero() {
			fmt.Fprintf(&text, ", next try in %v", f.NextTry.Sub(noon))
		}
		if f.Pod != "" || f.Call != "" {
			fmt.Fprintf(&text, ", pod %s (%s), container %s, call %s, %d pods", f.Pod, f.PodUID, f.Container, f.Call, f.Pods)
		}
		if f.Advice != f.Cause.Advice() { // that one is in advice.txt
			fmt.Fprintf(&text, "\n\t  %s", f.Advice)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// TestPods requires that each pod with trouble gets its own finding, with the next try as a
// detail.
func TestPods(t *testing.T) {
	s := pleg.Status{
		At: noon, Overdue: []pleg.Inspection{overdue("slow", time.Second, false), overdue("again", time.Second, false)},
		Quarantined: []pleg.Quarantined{quarantined("again", time.Minute, 1), quarantined("waits", time.Hour, 3)},
		Failed:      []pleg.Failed{{UID: "fails", Namespace: "shop", Name: "fails", Since: ago(time.Second), Err: errBroken}},
	}
	for uid, want := range map[pleg.PodUID]string{ // the runtime is not of CRI
		"slow":  "find out what PodStatus of this pod waits for",
		"again": "find out what PodStatus of this pod waits for",
		"fails": "read the log of the runtime at this time",
	} {
		if f := verdict.Pods(s)[uid]; f.Advice != want {
			t.Errorf("pod %s: the advice is %q, want %q", uid, f.Advice, want)
		}
	}
	for uid, want := range map[pleg.PodUID]string{
		"slow":  "shop/slow is slow since 11:59 (1.0s) in ContainerStatus of nginx",
		"again": "shop/again hangs since 11:59 (60s, 2 attempts) in ContainerStatus of nginx",
		"waits": "shop/waits hangs since 11:00 (60m, 3 attempts) in ContainerStatus of nginx",
		"fails": "shop/fails cannot be inspected since 11:59 (1.0s): broken",
	} {
		f := verdict.Pods(s)[uid]
		if f.Summary != want || f.NextTry.IsZero() == (uid == "waits") {
			t.Errorf("pod %s: %q, next try %v, want %q", uid, f.Summary, f.NextTry, want)
		}
	}
	nodestate.Change(&s.Details, func(n *nodestate.State) {
		n.Stuck = []nodestate.Stuck{{UID: "fails", Since: ago(time.Hour), Container: "first"}, {UID: "fails", Since: ago(time.Minute), Container: "second"}}
	})
	if f := verdict.Pods(s)["fails"]; !f.Since.Equal(ago(time.Hour)) {
		t.Errorf("a pod with two stuck containers: %+v, want the longest", f)
	}
	f := verdict.Pods(s)["waits"]
	if got, want := f.Complaint(noon), ", next try in 9.0s"; !strings.HasSuffix(got, want) {
		t.Errorf("the complaint is %q, want %q at its end", got, want)
	}
	differs := pleg.Status{At: noon, Contradictions: contradictions(time.Minute)} // without a CRI runtime
	if f := verdict.Pods(differs)["u"]; !strings.Contains(f.Advice, "ListPods and PodStatus") || !strings.HasPrefix(f.Summary, "shop/web-0 differs in lists and statuses since 11:59 (60s): ") {
		t.Errorf("a pod that differs: %+v", f)
	}
	ofCRI := s
	ofCRI.Endpoint, ofCRI.Contradictions, ofCRI.Details = "unix:///run/s", differs.Contradictions, nil
	for uid, want := range map[pleg.PodUID]verdict.Cause{"slow": verdict.SlowContainer, "again": verdict.HungContainer, "fails": verdict.RuntimeFails, "u": verdict.Contradiction} {
		if f := verdict.Pods(ofCRI)[uid]; f.Cause != want || f.Advice != want.Advice() {
			t.Errorf("pod %s of a CRI runtime: %+v, want the advice for %s", uid, f, want)
		}
	}
	if f := verdict.Pods(s)["fails"]; f.Severity != verdict.Problem || !strings.HasPrefix(f.Advice, "delete the pod") || f.Summary != "fails has a container without a process since 11:00 (60m): first has ended, and the runtime calls it running" {
		t.Errorf("a container without a process: %+v", f)
	}
	if got := f.Complaint(f.NextTry.Add(time.Second)); !strings.HasSuffix(got, ", next try in 0ms") {
		t.Errorf("the complaint about a pod whose try is due is %q", got)
	}
	if len(verdict.Pods(s)) != 4 {
		t.Errorf("%d findings, want a finding for each pod", len(verdict.Pods(s)))
	}
	shim := nodestate.Stuck{UID: "shim", Since: ago(time.Minute), Shim: &nodestate.Process{PID: 41, Name: "containerd-shim", State: "T"}}
	nodestate.Change(&s.Details, func(n *nodestate.State) { n.Stuck = append(lostEnds(ago(time.Minute))[:3], shim) })
	if f := verdict.Pods(s)["shim"]; f.Cause != verdict.HungShim {
		t.Errorf("a stopped shim beside many containers without a process: %+v", f)
	}
	if f, is := verdict.Pods(s)["web-1"]; is {
		t.Errorf("one of many containers without a process: %+v, want no finding of the pod", f)
	}
	two := pleg.Status{
		At: noon, Failed: []pleg.Failed{{UID: "fails 1", Err: errBroken}, {UID: "fails 2", Err: errBroken}},
		Contradictions: slices.Concat(contradictions(time.Minute), contradictions(time.Minute), contradictions(time.Minute)),
		Details:        nodestate.State{Stuck: []nodestate.Stuck{{UID: "shim 1", Shim: shim.Shim}, {UID: "shim 2", Shim: shim.Shim}}},
	}
	two.Contradictions[2].UID = "v"
	if got, want := fmt.Sprint(slices.Sorted(maps.Keys(verdict.Pods(two)))), "[fails 1 fails 2 shim 1 shim 2 u v]"; got != want {
		t.Errorf("pods with a finding are %s, want %s", got, want)
	}
}

// TestManyPodsAreOneShortLine lets nine of a hundred pods hang, or fail.
func TestManyPodsAreOneShortLine(t *testing.T) {
	for says, add := range map[string]func(s *pleg.Status, name string){
		"hangs": func(s *pleg.Status, name string) {
			s.Quarantined = append(s.Quarantined, quarantined(name, time.Minute, 5))
		},
		"cannot be inspected": func(s *pleg.Status, name string) {
			s.Failed = append(s.Failed, pleg.Failed{UID: pleg.PodUID(name), Namespace: "shop", Name: name, Since: ago(time.Minute), Err: errBroken})
		},
	} {
		for pods, more := range map[int]string{9: " and 6 more", 4: " and 1 more"} {
			s := pleg.Status{At: noon, Healthy: true, Relist: pleg.RelistStatus{Success: noon, Period: time.Second, Pods: 100}}
			for n := range pods {
				add(&s, fmt.Sprint("web-", n))
			}
			v := verdict.Of(s)
			if full := v.Full(); len(full) > 400 || !strings.Contains(full, "shop/web-2 "+says) || !strings.HasSuffix(full, more) || strings.Count(full, "web-0") != 1 {
				t.Errorf("%d bytes: %q, want each of the first three pods once in at most 400, and%s", len(full), full, more)
			}
		}
	}
}

// The evidence of a finding about several names the others.
func TestEvidenceNamesTheOthers(t *testing.T) {
	for want, change := range map[string]func(n *nodestate.State){
		"other; 90 bytes are unread, a client; 9 bytes are unread": func(n *nodestate.State) {
			other := &nodestate.Process{PID: 8, Name: "other", State: "S"}
			n.Unread = []nodestate.Unread{{Since: ago(9 * time.Second), Bytes: 900}, {Since: ago(time.Second), Client: other, Bytes: 90}, {Since: noon, Bytes: 9}}
		},
		"shop/web-1: conmon, PID 42, is stopped by a signal": func(n *nodestate.State) {
			for pid, name := range []string{"web-0", "web-1"} {
				shim := &nodestate.Process{PID: 41 + pid, Name: "conmon", State: "T"}
				n.Stuck = append(n.Stuck, nodestate.Stuck{UID: pleg.PodUID(name), Namespace: "shop", Name: name, Since: ago(9 * time.Second), Shim: shim})
			}
		},
	} {
		s := pleg.Status{At: noon, Healthy: true, Relist: pleg.RelistStatus{Success: noon, Period: time.Second, Pods: 9}}
		nodestate.Change(&s.Details, change)
		if f := verdict.Of(s).Findings; len(f) != 1 || f[0].Evidence != want {
			t.Errorf("findings %+v, want one with the evidence %q", f, want)
		}
	}
}

// The short text names the other problems, and no warning.
func TestBriefNamesProblems(t *testing.T) {
	v := verdict.New([]verdict.Finding{
		{Severity: verdict.Warning, Summary: "a is slow"}, {Severity: verdict.Problem, Summary: "b hangs"}, {Severity: verdict.Problem, Summary: "c hangs"},
	}, "")
	if got, want := v.Brief(), "PROBLEM: b hangs; also c hangs"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	mixed := verdict.New([]verdict.Finding{
		{Severity: verdict.Warning, Summary: "2"}, {Severity: verdict.Problem, Summary: "3"}, {Severity: verdict.Warning, Summary: "4"}, {Severity: verdict.Problem, Summary: "5"},
	}, "")
	if got, want := mixed.Full(), "PROBLEM: 3; ; also problem: 5; ; also warning: 2; ; also warning: 4; "; got != want {
		t.Errorf("got %q, want %q: the worst first, otherwise in their order", got, want)
	}
	if verdict.New(nil, "").Findings == nil {
		t.Error("no findings are null in JSON, want an empty list")
	}
}

// An inspection that took long before the runtime failed is no second finding. A hang began when it
// was first seen, and is reported as "at least" that old if nobody watched before.
func TestFindings(t *testing.T) {
	s := pleg.Status{At: noon, Endpoint: "unix:///run/s", Relist: pleg.RelistStatus{
		Success: ago(time.Minute), Took: 4 * time.Second, Period: time.Second, Pods: 1, Failing: ago(10 * time.Second), Failures: 2, Err: errBroken,
	}}
	if all := verdict.DefaultLimits.Findings(s); len(all) != 1 || all[0].Cause != verdict.RuntimeFails || all[0].AtLeast {
		t.Errorf("findings %+v, want only the failing lists", all)
	}
	now := pleg.Status{Relist: pleg.RelistStatus{Started: time.Now().Add(-time.Hour)}} // without its time
	if text := verdict.Of(now).Text; !strings.HasSuffix(text, " (60m)") {
		t.Errorf("the verdict on a list that began an hour ago is %q", text)
	}
	of := func(change func(*pleg.Status)) pleg.Status {
		s := pleg.Status{At: noon, Healthy: true, Relist: pleg.RelistStatus{Success: noon, Period: time.Second, Pods: 9}}
		change(&s)
		return s
	}
	for name, s := range map[string]pleg.Status{
		"lists fail":    s,
		"a pod is slow": of(func(s *pleg.Status) { s.Overdue = []pleg.Inspection{overdue("web-0", 10*time.Second, false)} }),
		"a pod hangs":   of(func(s *pleg.Status) { s.Quarantined = []pleg.Quarantined{quarantined("web-0", 10*time.Second, 2)} }),
		"a pod fails": of(func(s *pleg.Status) {
			s.Failed = []pleg.Failed{{UID: "u", Since: ago(10 * time.Second), Err: errBroken}}
		}),
		"a pod differs": of(func(s *pleg.Status) { s.Contradictions = contradictions(10 * time.Second) }),
		"it is slow": of(func(s *pleg.Status) {
			s.InspectionTook = 2 * time.Second
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = ago(10 * time.Second) })
		}),
		"it answers no inspection": of(func(s *pleg.Status) {
			for n := range 3 {
				s.Overdue = append(s.Overdue, overdue(fmt.Sprint("p", n), 10*time.Second, false))
			}
		}),
		"it is degraded": of(func(s *pleg.Status) {
			s.Degraded = errBroken
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Degraded = ago(10 * time.Second) })
		}),
		"it is unhealthy": of(func(s *pleg.Status) {
			s.Healthy, s.Err = false, errBroken
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Unhealthy = ago(10 * time.Second) })
		}),
		"a shim is stopped": of(func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Stuck = lostEnds(ago(10 * time.Second))[:1] })
		}),
		"many ends are not known": of(func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Stuck = lostEnds(ago(10 * time.Second)) })
		}),
		"a client does not read": of(func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Unread = []nodestate.Unread{{Since: ago(10 * time.Second)}} })
		}),
		"a disk is full": of(func(s *pleg.Status) {
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Disk = &nodestate.Disk{Since: ago(10 * time.Second)} })
		}),
		"another trouble": of(func(s *pleg.Status) { s.Troubles = []pleg.Trouble{{What: "is wrong", Since: ago(10 * time.Second)}} }),
	} {
		for watched, atLeast := range map[time.Duration]bool{9 * time.Second: false, 10 * time.Second: true, time.Minute: true} {
			limits := verdict.DefaultLimits
			limits.Watched = ago(watched)
			all := limits.Findings(s)
			if len(all) != 1 || all[0].AtLeast != atLeast {
				t.Errorf("%s, watched for %v: %+v, want at least: %v", name, watched, all, atLeast)
			}
			v := verdict.New(all, "")
			if strings.Contains(v.Text, " for at least 10s") != atLeast {
				t.Errorf("%s, watched for %v: %q, want at least: %v", name, watched, v.Text, atLeast)
			}
			if text := v.Lasting(); strings.Contains(text, " since ") == atLeast {
				t.Errorf("%s, watched for %v: the lasting text is %q, want a time unless it is older: %v", name, watched, text, atLeast)
			}
		}
	}
}

func contradictions(age time.Duration) []pleg.Contradiction {
	return []pleg.Contradiction{{
		UID: "u", Namespace: "shop", Name: "web-0", Container: "c1", ContainerName: "nginx", Listed: pleg.StateRunning, Missing: true, Since: ago(age),
	}}
}

// lostEnds are containers of many pods that have ended.
func lostEnds(since time.Time) (all []nodestate.Stuck) {
	for n := range 24 { // the longest first
		namespace, name, container := "shop", fmt.Sprint("web-", n), "nginx"
		if n > 0 {
			namespace, container = "other", "log"
		}
		if n == 1 {
			since = ago(time.Second)
		}
		all = append(all, nodestate.Stuck{UID: pleg.PodUID(name), Namespace: namespace, Name: name, Since: since, Container: container, ID: "c"})
	}
	return all
}

// Of several findings with the same severity and cause the metric has the age of the first: an alert counts
// from then, whichever came later.
func TestMetricHasTheFirstOfACause(t *testing.T) {
	trouble := func(subject string, age time.Duration, problem bool) pleg.Trouble {
		return pleg.Trouble{Cause: "clock", Subject: subject, What: "is wrong", Since: ago(age), Problem: problem}
	}
	old, recent, problem := trouble("a", time.Hour, false), trouble("b", time.Minute, false), trouble("c", time.Second, true)
	unknown := old
	unknown.Since = time.Time{}
	for name, tc := range map[string]struct {
		troubles         []pleg.Trouble
		warning, problem time.Time
	}{
		"the first is told first":     {[]pleg.Trouble{old, recent}, old.Since, time.Time{}},
		"the first is told last":      {[]pleg.Trouble{recent, old}, old.Since, time.Time{}},
		"its beginning is not known":  {[]pleg.Trouble{unknown}, noon, time.Time{}},
		"another severity is another": {[]pleg.Trouble{problem, recent, old}, old.Since, problem.Since},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			kit.Must(t, registry.Register(verdict.Metric(func() pleg.Status {
				return pleg.Status{At: noon, Healthy: true, Relist: pleg.RelistStatus{Success: noon, Period: time.Second}, Troubles: tc.troubles}
			})))
			for severity, want := range map[verdict.Severity]time.Time{verdict.Warning: tc.warning, verdict.Problem: tc.problem} {
				seconds := 0.0
				if !want.IsZero() {
					seconds = float64(want.Unix())
				}
				kit.RequireMetric(t, registry, seconds, "pleg_verdict_since_seconds", string(severity), "clock")
			}
		})
	}
}

// What a scrape shows, with the names of the labels.
func TestMetricText(t *testing.T) {
	for want, troubles := range map[string][]pleg.Trouble{
		`pleg_verdict_since_seconds{cause="none",level="ok"} 1000.5`:      nil,
		`pleg_verdict_since_seconds{cause="clock",level="warning"} 940.5`: {{Cause: "clock", Since: time.UnixMilli(940_500)}},
	} {
		m := verdict.Metric(func() pleg.Status {
			return pleg.Status{At: time.UnixMilli(1_000_500), Healthy: true, Relist: pleg.RelistStatus{Success: time.Unix(1000, 0), Period: time.Second}, Troubles: troubles}
		})
		const head = "# HELP pleg_verdict_since_seconds Unix time since which the verdict has a finding with these labels; the time of the scrape if all is well.\n# TYPE pleg_verdict_since_seconds gauge\n"
		kit.Must(t, testutil.CollectAndCompare(m, strings.NewReader(head+want+"\n")))
		if n := testutil.CollectAndCount(m); n != 1 {
			t.Errorf("%d series, want only %s", n, want)
		}
	}
}

// Each duration has one unit, as kubectl shows an age.
func TestSpan(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms": -time.Second, "99ms": 100*time.Millisecond - 1, "0.1s": 100 * time.Millisecond, "9.9s": 9900 * time.Millisecond, "10s": 10 * time.Second,
		"119s": 2*time.Minute - 1, "2m": 2 * time.Minute, "119m": 2*time.Hour - 1, "2h": 2 * time.Hour, "47h": 48*time.Hour - 1, "2d": 48 * time.Hour,
	} {
		if got := verdict.Span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// Scripts and the page read the fields of the JSON.
func TestVerdictAsJSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	got, err := json.Marshal(verdict.New([]verdict.Finding{{
		Cause: "cause", Severity: verdict.Problem, Summary: "summary", Evidence: "evidence", Advice: "advice", Subject: "subject", What: "what", Detail: "detail", Rest: "rest",
		Since: at, AtLeast: true, Attempts: 2, NextTry: at.Add(time.Second), Pod: "pod", PodUID: "uid", Container: "container", Call: "call", Pods: 3,
	}, {}}, "good"))
	kit.Must(t, err)
	const want = `{"severity":"problem","text":"PROBLEM: summary","findings":[{"cause":"cause","severity":"problem","summary":"summary","evidence":"evidence","advice":"advice",` +
		`"subject":"subject","what":"what","detail":"detail","rest":"rest","since":"2026-03-01T12:00:00Z","atLeast":true,"attempts":2,"nextTry":"2026-03-01T12:00:01Z",` +
		`"pod":"pod","podUID":"uid","container":"container","call":"call","pods":3},{"cause":"","severity":"","summary":"","evidence":"","advice":""}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The other texts of a verdict: one that lasts, one without names, and an error.
func TestTexts(t *testing.T) {
	kit.Bubble(t, "yesterday", func(t *testing.T) {
		yesterday := time.Now().Add(-21 * time.Hour)
		clock := yesterday.Local().Format("Jan 2 15:04")
		f := verdict.Finding{Cause: verdict.HungContainer, Severity: verdict.Problem, Summary: "summary", Advice: "advice", Subject: "shop/web-0", What: "hangs", Detail: " in Call", Since: yesterday, Attempts: 4}
		bare := verdict.Finding{Cause: verdict.Disk, Severity: verdict.Warning, Summary: "only the summary", Since: yesterday}
		old := f
		old.AtLeast = true
		v, least, other, good := verdict.New([]verdict.Finding{bare, f}, "good"), verdict.New([]verdict.Finding{old}, ""), verdict.New([]verdict.Finding{bare}, ""), verdict.New(nil, "good")
		silent := verdict.Silent("has sent no event", yesterday)
		ageless := f
		ageless.Since = time.Time{}
		unknown := verdict.New([]verdict.Finding{ageless}, "")
		for _, texts := range [][2]string{
			{v.Lasting(), "PROBLEM: shop/web-0 hangs since " + clock + " in Call"},
			{v.Anonymous(), "PROBLEM: hung container since " + clock + " (21h, 4 attempts)"},
			{least.Lasting(), "PROBLEM: shop/web-0 hangs in Call"},
			{least.Anonymous(), "PROBLEM: hung container for at least 21h"},
			{unknown.Lasting(), "PROBLEM: shop/web-0 hangs in Call"},
			{unknown.Anonymous(), "PROBLEM: hung container"},
			{other.Lasting(), "WARNING: only the summary"},
			{other.Anonymous(), "WARNING: disk since " + clock + " (21h)"},
			{good.Lasting(), "OK: good"},
			{good.Anonymous(), "OK: good"},
			{good.Full(), "OK: good"},
			{bare.Completed(time.Now()).Summary, "only the summary"},
			{verdict.Error{f}.Error(), "summary; advice"},
			{verdict.Plain(nil), "no error is known"},
			{silent.Full(), "PROBLEM: the node has sent no event since " + clock + " (21h)"},
			{silent.Good, ""},
		} {
			if texts[0] != texts[1] {
				t.Errorf("got %q, want %q", texts[0], texts[1])
			}
		}
		if f := silent.Findings[0]; len(silent.Findings) != 1 || f.Cause != verdict.NodeSilent || f.Severity != verdict.Problem || !f.Since.Equal(yesterday) || f.Advice != verdict.NodeSilent.Advice() {
			t.Errorf("the finding of a silent node: %+v", f)
		}
	})
}

// The advice for each cause is read in logs, pages and commands. The golden file has all of them.
func TestAdvice(t *testing.T) {
	var all strings.Builder
	for _, c := range []verdict.Cause{
		verdict.RuntimeStopped, verdict.NoPermission, verdict.RuntimeHangs, verdict.RuntimeSlow, verdict.RuntimeUnready, verdict.RuntimeFails, verdict.Contradiction,
		verdict.HungContainer, verdict.SlowContainer, verdict.HungShim, verdict.EmptyCgroup, verdict.Fallback, verdict.DeadContainers, verdict.ListTooLarge,
		verdict.NetworkPlugin, verdict.Disk, verdict.ClientNotReading, verdict.DaemonSilent, verdict.NodeSilent,
	} {
		s := pleg.Status{At: noon, Troubles: []pleg.Trouble{{Cause: string(c), What: "is wrong", Since: ago(time.Minute)}}}
		fmt.Fprintf(&all, "%s\n\t%s\n\tnot CRI: %s\n", c, c.Advice(), verdict.DefaultLimits.Findings(s)[0].Advice)
	}
	kit.Golden(t, "testdata/advice.txt", all.String())
}
