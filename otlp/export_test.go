package otlp

// For tests of this package.
var (
	NewRecord     = newRecord
	IsPermanent   = isPermanent
	ParseEndpoint = parseEndpoint
)

// MaxText is the length to which a text is cut.
const MaxText = maxText
