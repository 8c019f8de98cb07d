package fleet

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// AgentBucket is the key-value bucket with the agents, CLUSTER.NODE. A value that is not renewed counts no longer
// after [LeaseTTL], and disappears after [DefaultMaxAge].
const AgentBucket = "pleg-agents"

const (
	subjectPrefix = "pleg.v2."
	leasePrefix   = "$KV." + AgentBucket + "."
)

// StreamName returns the name of the stream of a cluster. It takes the subjects
// pleg.v2.CLUSTER.NODE.UID, one for each pod, and pleg.v2.CLUSTER.NODE.= for each node.
func StreamName(cluster string) string { return "pleg-v2-" + token(cluster) }

// nodeToken is the last token of a node's own message. No UID of a pod equals it.
const nodeToken = "="

func nodeKey(cluster, node string) string { return token(cluster) + "." + token(node) }

func nodeSubject(cluster, node string) string {
	return subjectPrefix + nodeKey(cluster, node) + "." + nodeToken
}

// podSubject returns the subject of a pod. A UID that is no name becomes its hash.
func podSubject(cluster, node string, uid pleg.PodUID) string {
	last := token(string(uid))
	if checkName("", string(uid), maxName) != nil {
		last = "=" + hash(string(uid))
	}
	return subjectPrefix + nodeKey(cluster, node) + "." + last
}

// subjects returns the subjects of some nodes of a cluster; without nodes, the subjects of all
// nodes.
func subjects(prefix, cluster string, nodes []string, suffix string) (all []string) {
	if len(nodes) == 0 {
		nodes = []string{"*"}
	}
	for _, node := range nodes {
		all = append(all, prefix+nodeKey(cluster, node)+suffix)
	}
	return all
}

// allOf returns the filters for all messages of some nodes of a cluster; none without nodes: a stream belongs
// to one cluster.
func allOf(cluster string, nodes ...string) []string {
	if len(nodes) == 0 {
		return nil
	}
	return subjects(subjectPrefix, cluster, nodes, ".>")
}

// nodeOf returns the node in a subject of the stream, pleg.v2.CLUSTER.NODE.UID, or of the bucket,
// $KV.pleg-agents.CLUSTER.NODE.
func nodeOf(subject string) string {
	for range 3 {
		_, subject, _ = strings.Cut(subject, ".")
	}
	node, _, _ := strings.Cut(subject, ".")
	return fromToken.Replace(node)
}

// token writes a name as one token of a subject.
func token(name string) string { return toToken.Replace(name) }

var (
	toToken   = strings.NewReplacer("_", "=5F", ".", "_")
	fromToken = strings.NewReplacer("=5F", "_", "_", ".")
)

const (
	// maxName is the length of the longest name of a Kubernetes node.
	maxName = 253
	// maxCluster keeps the name of a stream below the 255 bytes that nats-server allows.
	maxCluster = 80
)

// checkName returns an error if a name is invalid.
func checkName(what, name string, most int) error {
	switch {
	case name == "":
		return fmt.Errorf("%s must not be empty", what)
	case len(name) > most:
		return fmt.Errorf("%s has %d bytes, the limit is %d", what, len(name), most)
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") != "":
		return fmt.Errorf("%s is %q: want letters, digits, '-', '.' and '_'", what, name)
	}
	return nil
}

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
