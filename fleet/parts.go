package fleet

import (
	"fmt"
	"hash/fnv"
	"strconv"
)

// part is one of the parts of a fleet: a stream and two buckets, with the events and states of
// some nodes. What a fleet of one part has is named as if there were no parts.
type part struct{ number, parts int }

// partOf returns the part of a node. The number is the one that a subject mapping of nats-server
// with partition(PARTS,1) gives to the node's token.
func partOf(node string, parts int) part {
	h := fnv.New32a()
	_, _ = h.Write([]byte(token(node)))
	return part{int(h.Sum32() % uint32(parts)), parts}
}

// byPart returns the parts of some nodes, each with its nodes. Without nodes, it returns all parts.
func byPart(nodes []string, parts int) map[int][]string {
	split := make(map[int][]string)
	for number := range parts {
		if len(nodes) == 0 {
			split[number] = nil
		}
	}
	for _, node := range nodes {
		number := partOf(node, parts).number
		split[number] = append(split[number], node)
	}
	return split
}

// nameOf returns the name that the stream or bucket with this name has in the part.
func (p part) nameOf(name string) string {
	if p.number == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(p.number)
}

// explain adds the part to an error, unless there is only one.
func (p part) explain(err error) error {
	if err == nil || p.parts == 1 {
		return err
	}
	return fmt.Errorf("part %d: %w", p.number, err)
}

// stateStream is the stream that has the messages of [StateBucket].
func (p part) stateStream() string { return "KV_" + p.nameOf(StateBucket) }

// subject returns the subject of the events of a node, or of nodes if a token is a wildcard. A
// node has only one, so that the server can refuse a message unless it follows the one that the
// agent published last.
func (p part) subject(clusterToken, nodeToken string) string {
	if p.parts > 1 {
		nodeToken = strconv.Itoa(p.number) + "." + nodeToken
	}
	return eventSubjects + "." + clusterToken + "." + nodeToken
}

func (p part) eventSubject(cluster, node string) string {
	return p.subject(token(cluster), token(node))
}
