module github.com/pleg-pipeline/pleg-pipeline

go 1.26.0

require (
	github.com/prometheus/client_golang v1.25.0
	github.com/sourcegraph/conc v0.3.0
	github.com/spf13/cobra v1.10.2
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.48.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	gopkg.in/yaml.v3 v3.0.1
	k8s.io/apimachinery v0.37.2
	k8s.io/cri-api v0.37.2
)
