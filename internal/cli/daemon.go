package cli

// defaultSocket is where a daemon of this node is looked for.
const defaultSocket = "/run/pleg-pipeline/pleg.sock"
