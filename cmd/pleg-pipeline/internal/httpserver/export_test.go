package httpserver

// MaxConnections is the bound of connections, for tests.
const MaxConnections = maxConnections

// Limit is tested from outside.
var Limit = limit
