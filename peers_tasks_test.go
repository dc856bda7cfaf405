package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// These tests are about tasks, on servers that were not written here: by the extension of 2026-07-28, one on FastMCP;
// of 2025-11-25, an example of the TypeScript SDK. What server-everything does is in everything.txt and in the script
// chat-tasks-real.txt. What a run leaves behind that is killed is in tasks-real.txt.

// taskServer is the server with the extension, over a transport.
func taskServer(transport string, env ...string) peerServer {
	return peerServer{name: transport, command: func(t testing.TB, _ string) Command {
		command := peerScript(t, "tasks_server.py", transport)
		command.Env = env
		return command
	}}
}

// taskFile is the path of a file that is not there, and the arguments of the tool that waits for it.
func (s *peerSession) taskFile(name string) (path string, arguments json.RawMessage) {
	path = filepath.Join(s.dir, name)
	return path, json.RawMessage(peerJSON(map[string]string{"path": path}))
}

// Calls become tasks, and their results, questions and ends come over stdio and over HTTP.
func TestPeersTasks(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			checkLeaks(t)
			s := taskServer(transport).open(t)
			o := s.options("")
			begun := make(chan string, 100)
			o.OnTask = func(_ context.Context, e TaskEvent) {
				if !e.Ended {
					begun <- e.ID
				}
			}
			assert.NilError(t, s.connect(o))
			s.script("tasks", "")
			for len(begun) > 0 {
				<-begun
			}

			// Another client finishes what this one has begun, if the process is the same one.
			path, arguments := s.taskFile("late")
			outcome := s.begin("read", string(arguments))
			id := peerReceive(s, begun)
			task, err := s.GetTask(s.ctx, id)
			assert.NilError(t, err)
			assert.Equal(t, task.Status+" "+task.Message, "working waiting for late")
			other, err := Connect(s.ctx, s.start, &ClientOptions{})
			assert.NilError(t, err)
			assert.NilError(t, os.WriteFile(path, []byte("heron"), 0o600))
			result, err := other.Task(s.ctx, id, nil)
			if transport == "stdio" {
				assert.ErrorIs(t, err, ErrTaskForgotten)
			} else {
				assert.NilError(t, err)
				assert.Equal(t, result.Content[0].Text, "heron (None)")
			}
			assert.NilError(t, other.Close())
			assert.NilError(t, peerReceive(s, outcome))

			_, err = s.GetTask(s.ctx, "nonesuch")
			assert.ErrorIs(t, err, ErrTaskForgotten)
			_, err = s.Task(s.ctx, "nonesuch", nil)
			assert.ErrorIs(t, err, ErrTaskForgotten)
			assert.ErrorIs(t, s.CancelTask(s.ctx, "nonesuch"), ErrTaskForgotten)
		})
	}
}

// Two replicas behind nginx have their tasks each in its own memory, and the ids of the tasks begin with their names.
// nginx sends what is about a task to the replica that has it, by the header Mcp-Name, and all else in turn.
func TestNginxTasks(t *testing.T) {
	checkLeaks(t)
	requireNginx(t)
	var replicas []*peerHTTP
	var addresses, named []string
	for _, name := range []string{"one", "two"} {
		replica := startPeerHTTP(t, taskServer("http", "REPLICA="+name).command(t, ""))
		replicas = append(replicas, replica)
		addresses = append(addresses, "127.0.0.1:"+replica.port)
		named = append(named, name+"=127.0.0.1:"+replica.port)
	}
	dial := func(servers []string) *peerSession {
		s := openPeer(t, Command{})
		address := startNginx(s, "", "", servers...)
		s.useHTTP(&peerHTTP{url: "http://" + address + "/mcp", stderr: s.stderr})
		return s.able("")
	}

	// Each turn sends nginx three requests for any replica, so that the next call goes to the other one.
	s := dial(named)
	for range 4 {
		s.run(`call greet => Hello, Ann! (True, *)`, `call echo {"message":"on"} => on`)
	}
	updates := make(map[string]int)
	for _, x := range s.log.of("tasks/update") {
		name, _, _ := strings.Cut(x.Header.Get("Mcp-Name"), ".")
		updates[name]++
	}
	assert.DeepEqual(t, updates, map[string]int{"one": 4, "two": 4})

	for range replicas {
		s.run(`cancel read {"path":"$DIR/absent"} => *context canceled`, `call echo {"message":"on"} => on`)
	}
	for _, replica := range replicas {
		assert.NilError(t, replica.stderr.await(s.ctx, 1, "", "read was cancelled", nil))
	}

	// An nginx that does not look at the header asks a replica that does not know the task.
	lost := dial(addresses)
	lost.run(`call read {"path":"$DIR/absent"} => *does not know this task*`)
}

// An example of the TypeScript SDK, of 2025-11-25: a question to the user, and one to the model, in the middle of a
// task.
func TestPeerInteractive(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, "node_modules")
	path := peerFile(t, "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleTaskInteractive.js")
	command := Command{Path: "node", Args: []string{"--require", peerFile(t, "loopback.cjs"), path}}
	server := peerServer{name: "http", command: func(testing.TB, string) Command { return command }}
	s := server.open(t).able("")
	s.run(
		`server => 2025-11-25 {simple-task-interactive *1.0.0}: * tasks tools`,
		`taskonly => confirm_delete write_haiku`,
		`call confirm_delete {"filename":"a.txt"} => Deleted 'a.txt'`,
		`elicited => 1 [{*"message":"Are you sure you want to delete 'a.txt'?",*}]`,
		`user decline`,
		`call confirm_delete {"filename":"a.txt"} => Deletion cancelled`,
		`user accept`,
		`call write_haiku {"topic":"herons"} => Haiku:\nParis`,
		`sampled => {"messages":[{"role":"user",*"text":"Write a haiku about herons"}}],"maxTokens":50}`,
	)
}
