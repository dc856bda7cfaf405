package main

import "strings"

func runChild(mode string) int {
	if strings.HasPrefix(mode, "bench-") {
		return benchChild(benchResults()[mode])
	}
	return 0
}
