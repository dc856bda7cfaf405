// main_allowed.go - the tools that the user has allowed for later runs, each in a file.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// The files are in the user's own folder: what a project brings along allows nothing by them. A
// tool is allowed for a server that is reached as it was then (see configuration.allowedSource): by
// the same URL, or by the same command from the same folder. Another server of the same name is
// asked about. So is a tool of which the server says something else than it did then: what the user
// allowed is the tool as it was described to them, and a server can put another one in its place.

const allowedRecords records = "allowed"

// allowedTool is a tool in a file.
type allowedTool struct {
	Server  string    `json:"server"` // its name
	Source  string    `json:"source"` // see configuration.allowedSource: names change
	Tool    string    `json:"tool"`
	Version string    `json:"version"` // see toolVersion
	Folder  string    `json:"folder"`  // where the user allowed it, for the list
	Since   time.Time `json:"since"`

	path string // of the file
}

// toolVersion returns a hash of what a server says of a tool: all of its description that a model
// or a user gets to see. A change of a blank is another version.
func toolVersion(t *Tool) string {
	said := [][]byte{[]byte(t.Title), []byte(t.Description), t.InputSchema, t.Annotations}
	return fmt.Sprintf("%.16x", sha256.Sum256(fmt.Appendf(nil, "%q", said)))
}

// allowedSource says of which server a tool is allowed. A stranger's file may name a URL of which
// the user has allowed tools, with a token of the stranger's. So what is allowed of such a file
// holds in its folder alone, and nothing else holds there.
func (c *configuration) allowedSource(s *Server) string {
	source := sourceHash(s)
	if c.only == "" && c.file != "" && c.isOfStranger(c.file) {
		folder, _ := os.Getwd()
		source += " of " + folder
	}
	return source
}

// allowedVersion returns the version of a tool that the user has allowed for later runs, "" if they
// have allowed none. The file is read each time, so what another run takes back holds at once.
// source is that of the tool's server, here and in keepAllowed.
func allowedVersion(source, tool string) string {
	var kept allowedTool
	err := readRecord(allowedRecords.path(source, tool), &kept)
	if err != nil || kept.Source != source || kept.Tool != tool {
		return ""
	}
	return kept.Version
}

// keepAllowed allows a tool for later runs. It needs the folder of the files.
func keepAllowed(source, server, tool, version string) error {
	folder, _ := os.Getwd()
	return writeRecord(allowedRecords.path(source, tool), allowedTool{
		Server:  server,
		Source:  source,
		Tool:    tool,
		Version: version,
		Folder:  folder,
		Since:   time.Now().UTC().Truncate(time.Second),
	})
}

// allAllowed returns what is allowed for later runs, in the order of the files' names. What is no
// such file is left out.
func allAllowed() []*allowedTool {
	var tools []*allowedTool
	for _, path := range allowedRecords.paths() {
		tool := &allowedTool{path: path}
		err := readRecord(path, tool)
		if err == nil && tool.Source != "" {
			tools = append(tools, tool)
		}
	}
	return tools
}

// allowed lists the tools that are called without a question because the user has said so, or takes
// one of them back by its number.
func (c *chat) allowed(ctx context.Context, number string) error {
	inRun := c.terminal.Always(ctx)
	kept := allAllowed()
	if number != "" {
		return c.askAgain(ctx, number, inRun, kept)
	}
	if len(inRun)+len(kept) == 0 {
		c.output.say("(you have allowed no tool)")
		return nil
	}
	line := func(i int, server, tool, when string) {
		text := fmt.Sprintf("%3d  %s:%s  %s", i+1, OneName(server), OneName(tool), when)
		c.output.screen.Show(Look{}, text)
	}
	for i, t := range inRun {
		line(i, t.Server, t.Tool, "in this run")
	}
	for i, t := range kept {
		when := "in later runs, too: allowed " + t.Since.Local().Format("2006-01-02 15:04") +
			" in " + word(t.Folder)
		line(len(inRun)+i, t.Server, t.Tool, when)
	}
	c.output.say("(/allowed N takes one back: you are asked about it again)")
	return nil
}

// askAgain takes back the permission with a number in the list, for this run and for later ones.
func (c *chat) askAgain(
	ctx context.Context, number string, inRun []ServerTool, kept []*allowedTool,
) error {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(inRun)+len(kept) {
		return errors.New("/allowed takes a number from its list")
	}
	var tool ServerTool
	if n <= len(inRun) {
		tool = inRun[n-1]
		err = c.forgetAllowed(tool)
	} else {
		file := kept[n-1-len(inRun)]
		tool = ServerTool{file.Server, file.Tool}
		err = os.Remove(file.path)
	}
	if err != nil {
		return err
	}
	c.terminal.AskAgain(ctx, tool)
	c.output.say("(you are asked about %s:%s again)", OneName(tool.Server), OneName(tool.Tool))
	return nil
}

// forgetAllowed asks again in later runs about a tool of a server of this run.
func (c *chat) forgetAllowed(tool ServerTool) error {
	server := c.servers.config.named(tool.Server)
	if server == nil {
		return nil
	}
	source := c.servers.config.allowedSource(server)
	err := os.Remove(allowedRecords.path(source, tool.Tool))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
