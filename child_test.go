package main

func runChild(mode string) int { return 0 }
