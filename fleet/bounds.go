package fleet

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// CRI bounds no name, and the server refuses what is larger than its max_payload, however often
// it is sent. So what no pod of Kubernetes has is cut before it is published.
const (
	// maxText is the length of one text of an event in bytes.
	maxText = 4 << 10
	// maxLabels is the size of all labels of a pod in bytes: each of its events has them.
	maxLabels = 64 << 10
)

// fit cuts the texts of an event that are too long, and reports whether there were any. What is
// cut ends with a hash of the whole, so that two ids stay two.
func fit(ev *pleg.Event) (cut bool) {
	for _, text := range []*string{
		(*string)(&ev.PodUID), &ev.PodName, &ev.PodNamespace, (*string)(&ev.ContainerID), &ev.ContainerName, &ev.Reason, &ev.Image,
	} {
		if len(*text) > maxText {
			*text, cut = strings.ToValidUTF8((*text)[:maxText], "")+"~"+hash(*text), true
		}
	}
	return cut
}

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// encode returns the state as a value of at most limit bytes, and whether something was left out
// for that: labels that are too large, then the status, then the older events. Error says so.
func (s *podState) encode(limit int) (value []byte, cut bool, err error) {
	if size := sizeOf(s.Labels); size > maxLabels {
		s.Labels, s.Error, cut = nil, fmt.Sprintf("the labels are too large to publish: %d bytes", size), true
	}
	part := *s
	for {
		value, err = json.Marshal(part)
		if err != nil || len(value) <= limit || part.Status == nil && len(part.Events) == 0 {
			return value, cut, err
		}
		if part.Status == nil {
			part.Events = part.Events[(len(part.Events)+1)/2:]
		}
		s.Error, cut = fmt.Sprintf("the state is too large to publish whole: %d bytes", len(value)), true
		part.Status, part.Error = nil, s.Error
	}
}

func sizeOf(labels map[string]string) (size int) {
	for key, value := range labels {
		size += len(key) + len(value)
	}
	return size
}
