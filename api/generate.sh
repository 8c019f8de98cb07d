#!/bin/sh
# Generates the Go code of the protobuf packages below api/. Needs protoc, from
# Debian's protobuf-compiler, and Go, which builds the pinned plugins.
set -eu

protoc_gen_go=v1.36.12
protoc_gen_go_grpc=v1.6.2

cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
export GOBIN="$bin"
go install "google.golang.org/protobuf/cmd/protoc-gen-go@$protoc_gen_go"
go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$protoc_gen_go_grpc"

# The version of protoc stands in the generated files: another one changes them.
protoc --plugin="$bin/protoc-gen-go" --plugin="$bin/protoc-gen-go-grpc" \
	--go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative \
	pleg/v1/pleg.proto
