package monitor

// MaxConnections is the bound of connections, for tests.
const MaxConnections = maxConnections
