// Package recording writes the answers of a container runtime to a file, and
// answers CRI calls from such a file.
//
// The dial options of a [Recorder] tap a gRPC client. [Read] reads the file, and a
// [Server] answers as recorded.
//
// # The file
//
// The file has lines of JSON; [Create] compresses it if its name ends in .gz. The
// first line is the [Header], each other line one answer: when the call was made,
// how long it took, its name, and the answer in protojson or the error. A list
// refers to the list before: the ranges it keeps, and its new items. An answer
// equal to the last one to the same question is only "same". A call without an
// answer for a second is written as pending; its answer may follow in a later
// line. No line refers to a later one, so a truncated file is readable up to the
// last whole line.
//
// # Replay
//
// The clock of a replay starts with the first call. The server answers lists in
// their recorded order: while a list that differs from the one before has not
// been asked for, time stands still for all later answers. So a client sees the
// same changes whenever it lists. A status is never older than the state in the
// list before it. While a client follows CRI events, they determine the order, and
// lists show what was known at that time: the last list, and what events and
// single-pod lists have shown since.
package recording
