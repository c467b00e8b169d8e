// Command splicectl drives SpliceNIC cards: it runs the runtime, asks it, and looks into cards. Its commands hold no
// logic: they name packages of tools and runtime, and print what these answer.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
