package fleet

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The names on the server.
const (
	// EventStream is the stream of the events of all clusters. It takes the subjects
	// pleg.v1.ev.CLUSTER.NODE. With more than one part ([Limits].Parts), there is a stream and
	// there are buckets for each, whose names end with -1 and so on, except those of the
	// first part, and the subjects are pleg.v1.ev.CLUSTER.PART.NODE.
	EventStream = "pleg-events"
	// StateBucket is the key-value bucket with the state of every node, CLUSTER.NODE,
	// and of every pod, CLUSTER.NODE.NAMESPACE.UID.
	StateBucket = "pleg-state"
	// AgentBucket is the key-value bucket with the agents that publish now,
	// CLUSTER.NODE. A value that is not renewed disappears after [LeaseTTL].
	AgentBucket = "pleg-agents"
)

const eventSubjects = "pleg.v1.ev"

func nodeKey(cluster, node string) string { return token(cluster) + "." + token(node) }

func podKey(cluster, node, namespace string, uid pleg.PodUID) string {
	return nodeKey(cluster, node) + "." + token(namespace) + "." + token(string(uid))
}

func nodeOf(key string) (string, error) {
	tokens := strings.Split(key, ".")
	if len(tokens) < 2 {
		return "", fmt.Errorf("%q names no node", key)
	}
	return fromToken(tokens[1])
}

// token writes a name as one token of a subject: a dot becomes "_", every other byte
// that is not a letter, a digit or "-" becomes "=" and its two hexadecimal digits, and
// the empty name becomes "=". A name that is longer than Kubernetes allows becomes "=-" and its
// hash: the server refuses long subjects. No two names have the same token.
func token(name string) string {
	switch {
	case name == "":
		return "="
	case len(name) > maxName:
		return "=-" + hash(name)
	}
	return fromQuery.Replace(url.QueryEscape(name))
}

func fromToken(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	return url.QueryUnescape(toQuery.Replace(token))
}

// A token is a name in a query of a URL, written without the bytes that a key must not have.
var (
	fromQuery = strings.NewReplacer("%", "=", "+", "=20", "_", "=5F", "~", "=7E", ".", "_")
	toQuery   = strings.NewReplacer("=", "%", "_", ".")
)

// maxName is the length of the longest name of a Kubernetes node.
const maxName = 253

// checkName returns an error if a cluster or a node cannot have this name.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s must not be empty", what)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes, the limit is %d", what, len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }):
		return fmt.Errorf("%s is %q: want printable ASCII without spaces and slashes", what, name)
	}
	return nil
}
