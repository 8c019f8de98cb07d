// Package podselector parses the label selectors of clients. It limits them, because they
// are matched while others wait.
package podselector

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

const (
	// MaxRequirements is the greatest number of requirements, which commas separate.
	MaxRequirements = 64
	// MaxBytes is the greatest length. It also limits the values of "in".
	MaxBytes = 4 << 10
)

// Parse returns a Kubernetes label selector, or nil if the text is empty. The error says
// what is wrong, or which limit is exceeded.
func Parse(text string) (labels.Selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("the label selector has %d bytes, the limit is %d", len(text), MaxBytes)
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%.100q is not a label selector: %w", text, err)
	}
	if all, _ := selector.Requirements(); len(all) > MaxRequirements {
		return nil, fmt.Errorf("the label selector has %d requirements, the limit is %d", len(all), MaxRequirements)
	}
	return selector, nil
}
