// main_self.go - the servers of a configuration that are this program itself.
// SPDX-License-Identifier: 0BSD

package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// approveSelf finds the servers that are this program itself, as the command mcpagent serve DIR is,
// and allows the calls of their tools that only read. The built-in library has the same tools, and
// the user is not asked about those either. What decides is what a server is, and not its name.
//
// folder, if not "", is where the servers were found. Their file may be a stranger's, who must not
// have the files of the user read unasked: so only what is within that folder may be searched. A
// path that may lead to another machine is not even looked at.
func approveSelf(servers []Server, folder string) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	for i := range servers {
		s := &servers[i]
		searched, isSearch := searchedFolder(s.Command.Args)
		if folder != "" && (MayLeaveMachine(s.Command.Path) || MayLeaveMachine(searched)) {
			continue
		}
		if !isSelf(s, self) {
			continue
		}
		isAllowed := folder == "" || searched == "" || isWithin(folder, searched)
		if isSearch && isAllowed {
			// Nothing that is put in the place of the command later on is started as this program.
			s.Command.Path = self
			s.AutoApprove = slices.Concat(s.AutoApprove, ReadOnlyLibraryTools())
		}
	}
}

// isSelf reports whether the command of a server is this program, by whatever links. A variable or
// a folder of its own could make another program of it.
func isSelf(s *Server, self string) bool {
	if s.Err != nil || s.URL != "" || len(s.Command.Env) > 0 || s.Command.Dir != "" {
		return false
	}
	path, err := exec.LookPath(s.Command.Path)
	if err != nil {
		return false
	}
	command, err := os.Stat(path)
	if err != nil {
		return false
	}
	program, err := os.Stat(self)
	return err == nil && os.SameFile(command, program)
}

// searchedFolder reports whether the arguments of this program make it a server on stdio that only
// searches, and returns the folder that it searches, "" if it is the program's own source. They are
// read as the program itself reads them. The one flag that they may have bounds what is read.
func searchedFolder(args []string) (folder string, isSearch bool) {
	flags := new(settings).flags()
	words, isQuestion, err := parseFlags(flags, args)
	isHarmless := true
	flags.Visit(func(f *flag.Flag) { isHarmless = isHarmless && f.Name == "max-file" })
	isServe := err == nil && !isQuestion && len(words) > 0 && words[0] == "serve"
	if !isServe || !isHarmless || len(words) > 2 {
		return "", false
	}
	if len(words) == 2 {
		folder = words[1]
	}
	return folder, true
}

// isWithin reports whether a path is a folder or within it, wherever links lead.
func isWithin(folder, path string) bool {
	for _, p := range []*string{&folder, &path} {
		absolute, err := filepath.Abs(*p)
		if err != nil {
			return false
		}
		*p, err = filepath.EvalSymlinks(absolute)
		if err != nil {
			return false
		}
	}
	relative, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(relative)
}
