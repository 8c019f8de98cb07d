package differ

// state is where a pod stands between two observations.
//
//	          +------------- inspection succeeded --------------+
//	          v                                                 |
//	      settled ---------- change to inspect --------> inspecting <--+
//	       |   ^                                          |        |   |
//	change |   | passed on                         failed |   hung |   | retry
//	       v   |                                          v        v   |
//	     forwarding <--- gone, or its status is known -- failed   quarantined
type state uint8

const (
	// stateSettled: the cache and the subscribers have all that was observed of
	// the pod. The next observation that differs from the old pod makes a change.
	stateSettled state = iota

	// stateInspecting: a change is queued for an inspector or with one. What is
	// observed meanwhile waits in the record and is compared when the change
	// settles.
	stateInspecting

	// stateForwarding: a change is on its way that needs no inspection. The pod
	// is gone, its status came with a CRI event, or the change is delivered
	// uninspected after too many failures. In the last case the pod returns to
	// stateFailed or stateQuarantined afterwards.
	stateForwarding

	// stateFailed: the last inspection failed. The old pod stays what it was, so
	// the next observation finds the change again and the pod is inspected again.
	stateFailed

	// stateQuarantined: the last inspection hung or failed late. As stateFailed, but
	// the retry waits until its time has come, and lets other pods go first.
	stateQuarantined
)

// inFlight reports whether a change of the pod is on its way.
func (s state) inFlight() bool { return s == stateInspecting || s == stateForwarding }

// retrying reports whether the last inspection failed.
func (s state) retrying() bool { return s == stateFailed || s == stateQuarantined }
