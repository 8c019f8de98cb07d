package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.yaml.in/yaml/v2"
)

// readConfig returns the runtime endpoint in a configuration file of crictl, or ""
// if the file has none. If must is false, the file may be missing.
func readConfig(file string, must bool) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	var config struct {
		RuntimeEndpoint string `yaml:"runtime-endpoint"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("read configuration %s: %w", file, err)
	}
	return config.RuntimeEndpoint, nil
}
