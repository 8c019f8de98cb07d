module github.com/pleg-pipeline/pleg-pipeline/kubelet/e2e

go 1.26.0

replace (
	github.com/pleg-pipeline/pleg-pipeline => ../../
	github.com/pleg-pipeline/pleg-pipeline/tests/e2e => ../../tests/e2e
)

require (
	github.com/pleg-pipeline/pleg-pipeline/tests/e2e v0.0.0
	google.golang.org/grpc v1.85.0
	k8s.io/cri-api v0.37.2
)

require (
	github.com/pleg-pipeline/pleg-pipeline v0.0.0-00010101000000-000000000000 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
