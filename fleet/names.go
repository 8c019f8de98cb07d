package fleet

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// AgentBucket is the key-value bucket with the agents that publish now, CLUSTER.NODE. A value that
// is not renewed disappears after [LeaseTTL].
const AgentBucket = "pleg-agents"

const (
	streamPrefix  = "pleg-v2-"
	subjectPrefix = "pleg.v2."
	// oldStream is the stream of the first layout, which other agents may still publish in.
	oldStream = "pleg-events"
)

// StreamName returns the name of the stream of a cluster. It takes the subjects
// pleg.v2.CLUSTER.NODE.UID, one for each pod, and pleg.v2.CLUSTER.NODE.= for each node.
func StreamName(cluster string) string {
	name := token(cluster)
	if len(name) > maxStream {
		name = "=-" + hash(cluster)
	}
	return streamPrefix + name
}

// maxStream keeps the name of a stream below the 255 bytes that nats-server allows.
const maxStream = 200

// nodeToken is the last token of a node's own message: that of a pod without a UID.
const nodeToken = "="

func podSubject(cluster, node string, uid pleg.PodUID) string {
	return subjectPrefix + nodeKey(cluster, node) + "." + token(string(uid))
}

// subjectsOf returns the subjects of some nodes of a cluster; without nodes, those of all.
func subjectsOf(cluster string, nodes []string) []string {
	if len(nodes) == 0 {
		return []string{subjectPrefix + token(cluster) + ".>"}
	}
	all := make([]string, len(nodes))
	for i, node := range nodes {
		all[i] = subjectPrefix + nodeKey(cluster, node) + ".>"
	}
	return all
}

// nodeOf returns the node in a subject or a key of the bucket, in which it is the token at a place.
func nodeOf(subject string, place int) (string, error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) <= place {
		return "", fmt.Errorf("%q names no node", subject)
	}
	return fromToken(tokens[place])
}

// Where a subject of the stream has the node and the pod.
const (
	nodePlace = 3
	podPlace  = 4
)

func nodeKey(cluster, node string) string { return token(cluster) + "." + token(node) }

func leaseSubject(key string) string { return "$KV." + AgentBucket + "." + key }

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

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
