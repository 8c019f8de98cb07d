package server

// For tests of this package.
const (
	AnswerTimeout = answerTimeout
	Grace         = grace
)
