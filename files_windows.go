// files_windows.go - the owner of a file, on Windows, where it follows from the folder.
// SPDX-License-Identifier: 0BSD

package main

import "io/fs"

func takePlace(string, fs.FileInfo) error { return nil }
