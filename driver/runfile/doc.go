// Package runfile reads the small files that processes leave for each other in a run directory. Whoever can write there may
// have put something else under their names, so reading waits for nobody, follows no link and is bounded: what is no
// regular file, or is too large, is an error that says so.
package runfile
