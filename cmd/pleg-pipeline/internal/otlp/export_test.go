package otlp

// For tests of this package.
var (
	NewRecord   = newRecord
	IsRejection = isRejection
)

// MaxText is the length to which a text is cut, MaxBatch the largest number of records in a request.
const (
	MaxText  = maxText
	MaxBatch = maxBatch
)

// Endpoint returns where requests go and how, in a line.
func Endpoint(endpoint string) (string, error) {
	to, overHTTP, err := ParseEndpoint(endpoint)
	switch {
	case err != nil:
		return "", err
	case overHTTP:
		return "http " + to.String(), nil
	}
	return "grpc " + to.String(), nil
}
