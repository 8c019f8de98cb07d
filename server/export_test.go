package server

// Grace is for tests of this package.
const Grace = grace
