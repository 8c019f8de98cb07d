// Package recording keeps what a container runtime answers over CRI in a file,
// and answers with that file in the runtime's place.
//
// A [Recorder] taps a gRPC client by its dial options. [Read] reads the file
// again, and a [Server] answers as was recorded.
//
// # The file
//
// It is lines of JSON, by [Create] compressed if its name ends in .gz. The first
// line is the [Header], each other one an answer: when it was asked for, how
// long it took, the call, and the answer in protojson or the error. A list is
// told by the one before: what it keeps of that, and what is new. An answer like
// the last to the same question is only "same". A call that has had no answer
// for a second is noted as pending; its answer, if one comes, is a later line. A
// line never refers to a later one, so a file that was cut off anywhere is good
// up to there.
//
// # Replay
//
// The clock of a replay starts with the first call. Lists are answered in the
// order in which they were recorded: while one that differs from the one before
// has not been asked for, time stands still for all later answers. So the same
// changes are seen, whatever the phase of the lists. A status is never older
// than the state in the list that it was asked after. While container events
// are followed the order comes from them, and lists show what was known at that
// time: the last list, and what events and lists of single pods have told since.
package recording
