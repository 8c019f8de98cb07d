package top

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Nodes are the nodes whose pods the view shows.
type Nodes struct {
	All int
	// Silent are the nodes whose events nobody publishes.
	Silent []string
}

// Cluster is a [Source] with the pods of many nodes. Its status is not asked for: each
// node has its own.
type Cluster interface {
	Source
	Nodes(ctx context.Context) (Nodes, error)
}

// verdict says in one line what is wrong with a cluster. ok is false if something is.
func (n *Nodes) verdict(m *model, now time.Time) (text string, ok bool) {
	if len(n.Silent) > 0 {
		text := "PROBLEM: nobody publishes the events of node " + n.Silent[0]
		if more := len(n.Silent) - 1; more > 0 {
			text += fmt.Sprintf("; %d more", more)
		}
		return text, false
	}
	if worst := m.worst(); worst != nil {
		return m.problem(worst, now), false
	}
	return "all nodes publish", true
}

// drawNodes draws the figures of a cluster, where those of the stages are for a node.
func (v *painter) drawNodes(m *model) {
	v.fields(2, [][2]string{
		{"nodes", strconv.Itoa(m.nodes.All)},
		{"silent", strconv.Itoa(len(m.nodes.Silent))},
		{"pods", strconv.Itoa(len(m.pods))},
		{"not inspected", strconv.Itoa(m.sick())},
	})
	v.drawRate(0, m)
}
