// Prints which memory of a Go program lies in the pool: memory from C, and memory from Go.
package main

/*
#cgo pkg-config: bedplate-malloc
#include <bedplate.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"unsafe"
)

func place(memory unsafe.Pointer, bytes int) string {
	if C.bp_contains(memory, C.size_t(bytes)) != 0 {
		return "pool"
	}
	return "elsewhere"
}

func main() {
	block := C.malloc(1000)
	defer C.free(block)
	own := make([]byte, 1000)
	fmt.Println("malloc:", place(block, 1000))
	fmt.Println("make:", place(unsafe.Pointer(&own[0]), len(own)))
}
