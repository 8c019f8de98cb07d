package httpserver

// MaxConnections is the greatest number of connections.
const MaxConnections = maxConnections

// Limit limits the requests of a handler.
var Limit = limit
