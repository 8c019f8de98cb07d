// Package recording writes the answers of a container runtime to a file. The dial
// options of a [Recorder] tap a gRPC client. Package replay reads the file and
// answers CRI calls from it.
//
// The file has lines of JSON; [Create] compresses it if its name ends in .gz. The
// first line is the header, each other line one answer: when the call was made, how
// long it took, its name, and the answer in protojson or the error. A list refers
// to the list before: the ranges it keeps, and its new items. An answer equal to
// the last one to the same question is only "same". A call without an answer for a
// second is written as pending; its answer may follow in a later line. No line
// refers to a later one, so a truncated file is readable up to the last whole line.
package recording
