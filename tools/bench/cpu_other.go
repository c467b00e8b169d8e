//go:build !linux

package bench

import "time"

func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }

func processTime() time.Duration { return threadTime() }
