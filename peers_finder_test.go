package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// finderServers are real servers as a user may have them together. Each lists its tools without an account: what it
// wants to know at its start is made up, and no tool is called.
func finderServers(t *testing.T) []Server {
	vault := t.TempDir()
	const nowhere = "http://127.0.0.1:9"
	many, venv := "many/node_modules/", peerFile(t, "venv-many/bin")
	script := func(name, path, arguments string, env ...string) Server {
		args := append([]string{peerFile(t, path)}, strings.Fields(arguments)...)
		return Server{Name: name, Command: Command{Path: "node", Args: args, Env: env}}
	}
	program := func(name, path string, args ...string) Server {
		return Server{Name: name, Command: Command{Path: filepath.Join(venv, path), Args: args}}
	}
	reference := "@modelcontextprotocol/server-"
	servers := []Server{
		script("airtable", many+"airtable-mcp-server/dist/main.js", "", "AIRTABLE_API_KEY=pat123.abc"),
		script("browser", many+"@playwright/mcp/cli.js", ""),
		script("charts", many+"@antv/mcp-server-chart/build/index.js", ""),
		program("clock", "mcp-server-time", "--local-timezone", "UTC"),
		script("coolify", many+"@masonator/coolify-mcp/dist/index.js", "",
			"COOLIFY_ACCESS_TOKEN=x", "COOLIFY_BASE_URL="+nowhere),
		script("everything", "node_modules/"+reference+"everything/dist/index.js", ""),
		script("files", "node_modules/"+reference+"filesystem/dist/index.js", vault),
		program("git", "mcp-server-git"),
		script("github", many+reference+"github/dist/index.js", "", "GITHUB_PERSONAL_ACCESS_TOKEN=x"),
		script("gitlab", many+"@zereight/mcp-gitlab/build/index.js", "",
			"GITLAB_PERSONAL_ACCESS_TOKEN=x", "GITLAB_API_URL="+nowhere, "USE_PIPELINE=true", "USE_GITLAB_WIKI=true",
			"GITLAB_TOOLSETS=all"),
		script("maps", many+reference+"google-maps/dist/index.js", "", "GOOGLE_MAPS_API_KEY=x"),
		script("memory", "node_modules/"+reference+"memory/dist/index.js", "", "MEMORY_FILE_PATH="+vault+"/memory"),
		script("money", many+"@akutishevsky/lunchmoney-mcp/build/index.js", "", "LUNCHMONEY_API_TOKEN=x"),
		script("notion", many+"@notionhq/notion-mcp-server/bin/cli.mjs", "", "NOTION_TOKEN=x"),
		script("paperless", many+"@baruchiro/paperless-mcp/build/index.js", "",
			"PAPERLESS_URL="+nowhere, "PAPERLESS_API_KEY=x"),
		script("slack", many+reference+"slack/dist/index.js", "", "SLACK_BOT_TOKEN=xoxb-1", "SLACK_TEAM_ID=T1"),
		program("slides", "ppt_mcp_server"),
		script("strava", many+"@r-huijts/strava-mcp-server/dist/server.js", "", "STRAVA_ACCESS_TOKEN=x"),
		script("trello", many+"@delorenj/mcp-server-trello/build/index.js", "", "TRELLO_API_KEY=x", "TRELLO_TOKEN=x"),
		{Name: "vault", Command: Command{Path: venv + "/mcp-obsidian", Env: []string{"OBSIDIAN_API_KEY=x"}}},
		script("weather", many+"@dangahagan/weather-mcp/dist/index.js", "", "ENABLED_TOOLS=all"),
	}
	for i := range servers {
		servers[i].StartTimeout = 3 * time.Minute // all of them start at once
	}
	return servers
}

// finderTask is what a person asks for, and the tools that do it.
type finderTask struct {
	words string
	tools []string
}

// finderTasks reads a file of tasks. Those that no server has a tool for are left out.
func finderTasks(t *testing.T, path string) (tasks []finderTask) {
	for line := range strings.Lines(readText(t, path)) {
		words, tools, isTask := strings.Cut(line, " = ")
		if isTask && !strings.HasPrefix(line, "#") {
			tasks = append(tasks, finderTask{words, strings.Fields(tools)})
		}
	}
	return tasks
}

// finderSets returns the tasks in three sets. Half of the first 60, those whose words have the lowest SHA-256, were
// worked with when the ranking was improved; the other half and the new ones were kept away until that had been done.
func finderSets(t *testing.T) (names []string, sets [][]finderTask) {
	first := slices.Concat(finderTasks(t, "testdata/finder/tasks-before.txt"),
		finderTasks(t, "testdata/finder/tasks-after.txt"))
	slices.SortFunc(first, func(a, b finderTask) int {
		x, y := sha256.Sum256([]byte(a.words)), sha256.Sum256([]byte(b.words))
		return bytes.Compare(x[:], y[:])
	})
	assert.Equal(t, len(first), 60)
	newest := finderTasks(t, "testdata/finder/tasks-new.txt")
	assert.Check(t, len(newest) >= 40)
	return []string{"worked with", "kept away", "new"}, [][]finderTask{first[:30], first[30:], newest}
}

// finderScore counts the tasks whose tool was found.
type finderScore struct {
	tasks, five, ten int // one query: among the first five, and the first ten
	best, named      int // or else on the first page of the best match's server; of the server of any match
	known            int // or else on the first page of its own server, which the answer and the system prompt name
	within           int // one query with its own server: among the first ten
}

func (s *finderScore) String() string {
	percent := func(n int) string { return fmt.Sprintf("%d (%d %%)", n, (100*n+s.tasks/2)/s.tasks) }
	return fmt.Sprintf("%d tasks: %s among five, %s among ten; within two calls %s, %s, %s; with its server %s",
		s.tasks, percent(s.five), percent(s.ten), percent(s.best), percent(s.named), percent(s.known), percent(s.within))
}

// foundTool matches a line of a result of find_tools that names a tool, offered or not.
var foundTool = regexp.MustCompile(`(?m)^(?:[0-9]+\.|-) (\S+?):`)

// try asks find_tools for one task, in the person's own words.
func (s *finderScore) try(t *testing.T, f *Finder, task finderTask) {
	ask := func(arguments map[string]string) (names []string) {
		text := find(t, f, nil, string(modelJSON(arguments)))
		for _, line := range foundTool.FindAllStringSubmatch(text, -1) {
			names = append(names, line[1])
		}
		return names
	}
	isRight := func(name string) bool { return slices.Contains(task.tools, name) }
	isOn := func(server string) bool {
		return slices.ContainsFunc(ask(map[string]string{"server": server}), isRight)
	}
	own, _, _ := strings.Cut(task.tools[0], "__")
	if slices.ContainsFunc(ask(map[string]string{"query": task.words, "server": own}), isRight) {
		s.within++
	}
	names := ask(map[string]string{"query": task.words})
	at := slices.IndexFunc(names, isRight)
	s.tasks++
	if at >= 0 && at < 5 {
		s.five++
	}
	if at >= 0 {
		s.ten++
		s.best++
		s.named++
		s.known++
		return
	}
	var servers []string
	for _, name := range names {
		server, _, _ := strings.Cut(name, "__")
		servers = append(servers, server)
	}
	if len(servers) > 0 && isOn(servers[0]) {
		s.best++
	}
	isNamed := slices.ContainsFunc(slices.Compact(slices.Sorted(slices.Values(servers))), isOn)
	if isNamed {
		s.named++
	}
	if isOn(own) {
		s.known++
	}
	t.Logf("%q: %v is not among %v; on a named server: %v", task.words, task.tools, names, isNamed)
}

// TestPeersFinder: of several hundred tools of real servers, find_tools finds what a person asks for, and a request has
// a tenth of the bytes. The figures are in docs/performance.md.
func TestPeersFinder(t *testing.T) {
	for _, folder := range []string{"node_modules", "many/node_modules", "venv-many"} {
		requirePeers(t, folder)
	}
	checkLeaks(t)
	host := NewHost(finderServers(t), nil)
	defer host.Close()
	// The servers are not asked by Functions, which goes on without those that are slow.
	tools, err := host.Tools(t.Context())
	assert.NilError(t, err)
	var names []string
	for _, s := range host.Status() {
		assert.Check(t, s.Err == nil && s.Tools > 0, "%s: %v", s.Name, s.Err)
	}
	for _, tool := range tools {
		names = append(names, tool.Function)
	}
	all, err := host.Functions(t.Context())
	assert.NilError(t, err)
	assert.Check(t, len(all) >= 300, "%d tools", len(all))
	var history []ChatMessage
	f := &Finder{
		Tools:   GoTools(finderTools(all)),
		Sources: func() []ToolSource { return toolSources(host) },
		History: func() []ChatMessage { return history },
	}
	offered(t, f)

	setNames, sets := finderSets(t)
	for i, tasks := range sets {
		var score finderScore
		for _, task := range tasks {
			for _, name := range task.tools {
				assert.Check(t, slices.Contains(names, name), "there is no %s", name)
			}
			score.try(t, f, task)
		}
		t.Logf("%s: %v", setNames[i], &score)
		assert.Check(t, 10*score.ten >= 7*score.tasks, "the ranking has become worse")
	}

	question := ChatMessage{Role: "user", Content: TextContent("Leave a remark on a Notion page.")}
	request := func(system string, tools []Function) int {
		messages := append([]ChatMessage{{Role: "system", Content: TextContent(system)}, question}, history...)
		return len(modelJSON(ChatRequest{Messages: messages, Tools: tools}))
	}
	without := request(host.Instructions(), all)
	offer, err := f.Functions(t.Context())
	assert.NilError(t, err)
	first := request(f.Instructions(), offer)
	find(t, f, &history, string(modelJSON(map[string]string{"query": question.Content.Text()})))
	offer, err = f.Functions(t.Context())
	assert.NilError(t, err)
	second := request(f.Instructions(), offer)
	t.Logf("%d tools of %d servers: a request has %d bytes, with find_tools %d, after a query %d",
		len(all), len(host.Status()), without, first, second)
	assert.Check(t, second*10 <= without)
}

// finderTools makes a toolbox of functions that are not called.
func finderTools(functions []Function) (tools []GoTool) {
	for _, f := range functions {
		tools = append(tools, GoTool{Function: f})
	}
	return tools
}
