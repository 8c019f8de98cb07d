package httpserver

// MaxConnections is the maximum number of connections.
const MaxConnections = maxConnections

// Limit is the handler that limits requests.
var Limit = limit
