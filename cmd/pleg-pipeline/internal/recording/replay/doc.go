// Package replay reads a recording, and answers CRI calls as recorded.
//
// The clock of a replay starts with the first call. The server answers lists in
// their recorded order: while a list that differs from the one before has not
// been asked for, time stands still for all later answers. So a client sees the
// same changes whenever it lists. A status is never older than the state in the
// list before it. While a client follows CRI events, they determine the order, and
// lists show what was known at that time: the last list, and what events and
// single-pod lists have shown since.
package replay
