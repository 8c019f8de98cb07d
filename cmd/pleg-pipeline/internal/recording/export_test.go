package recording

// NewRecorderWithQueue is NewRecorder with another length of the queue.
var NewRecorderWithQueue = newRecorder
