package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// The official conformance suite tests clients: for each scenario it starts a server that is made for it, runs the client, and
// judges what it saw. Here the client is this test binary. testdata/peers/install.sh installs the suite.

// conformanceSet is what the suite has for clients of one revision.
type conformanceSet struct {
	revision string
	runs     []conformanceScenario
	pending  []string // scenarios that are not run yet, as this client has no authorization
}

// conformanceScenario is one that is run. Its checks are as many as this client can have: those for what it does not do are
// skipped by the suite, and a client that fails to do something must not pass for that.
type conformanceScenario struct {
	name   string
	checks int
}

func conformanceSets() []conformanceSet {
	auth := []string{"auth/metadata-default", "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3", "auth/basic-cimd",
		"auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined",
		"auth/scope-step-up", "auth/scope-retry-limit", "auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post",
		"auth/token-endpoint-auth-none", "auth/pre-registration",
		// Run but not scored by the suite, like json-schema-2020-12-preservation:
		"auth/client-credentials-jwt", "auth/client-credentials-basic", "auth/enterprise-managed-authorization", "auth/dpop",
		"auth/dpop-nonce", "auth/wif-jwt-bearer"}
	return []conformanceSet{{
		revision: "2025-11-25",
		runs: []conformanceScenario{
			{"initialize", 1},
			{"tools_call", 2},
			{"elicitation-sep1034-client-defaults", 5},
			{"sse-retry", 3},
			{"json-schema-2020-12-preservation", 9},
		},
		pending: auth,
	}, {
		revision: "2026-07-28",
		runs: []conformanceScenario{
			{"tools_call", 2},
			{"request-metadata", 8},
			{"sep-2322-client-request-state", 5},
			{"http-standard-headers", 9},
			{"http-custom-headers", 18},
			{"http-invalid-tool-headers", 12},
			{"json-schema-ref-no-deref", 1},
			{"json-schema-2020-12-preservation", 9},
		},
		pending: slices.Concat(auth, []string{"auth/resource-mismatch", "auth/offline-access-scope",
			"auth/offline-access-not-supported", "auth/authorization-server-migration", "auth/iss-supported",
			"auth/iss-not-advertised", "auth/iss-supported-missing", "auth/iss-wrong-issuer", "auth/iss-unexpected",
			"auth/iss-normalized", "auth/metadata-issuer-mismatch"}),
	}}
}

// TestConformanceList: every scenario that the suite has for clients is either run here or known to be pending.
func TestConformanceList(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, conformanceFolder)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output, err := conformanceCommand(ctx, "list", "--requirements", "2025-11-25,2026-07-28").Output()
	assert.NilError(t, err)
	listed := conformanceList(string(output))
	var revisions []string
	for _, set := range conformanceSets() {
		t.Logf("%s: %d run, %d pending: %v", set.revision, len(set.runs), len(set.pending), set.pending)
		known := slices.Clone(set.pending)
		for _, scenario := range set.runs {
			known = append(known, scenario.name)
		}
		slices.Sort(known)
		assert.DeepEqual(t, slices.Sorted(slices.Values(listed[set.revision])), known)
		revisions = append(revisions, set.revision)
	}
	assert.DeepEqual(t, slices.Sorted(maps.Keys(listed)), revisions)
}

// conformanceList reads the scenarios for clients, by revision, from the suite's list.
func conformanceList(text string) map[string][]string {
	scenarios := make(map[string][]string)
	revision, all := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		item, isItem := strings.CutPrefix(strings.TrimLeft(line, " "), "- ")
		name, isClient := strings.CutSuffix(item, " [client]") // what is not counted, of both kinds
		switch {
		case strings.HasPrefix(line, "Required for "):
			revision = strings.Fields(line)[2]
		case isItem && (all || isClient):
			scenarios[revision] = append(scenarios[revision], name)
		case !isItem && line != "":
			all = strings.HasPrefix(line, "Client scenarios")
		}
	}
	return scenarios
}

// TestConformance: the client passes, told nothing but the server's address. What it speaks it finds out itself.
func TestConformance(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, conformanceFolder)
	self, err := os.Executable()
	assert.NilError(t, err)
	eachConformanceRun(t, func(t *testing.T, revision string, scenario conformanceScenario) {
		// A shell runs this, with the URL after it, in its own place: who ends the shell ends the client.
		assert.NilError(t, conformanceRun(t, "exec '"+self+"'", revision, scenario))
	})
}

// A client that does nothing, and says it is done, passes nothing; some scenarios the suite itself would let it pass.
func TestConformanceOfNothing(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, conformanceFolder)
	eachConformanceRun(t, func(t *testing.T, revision string, scenario conformanceScenario) {
		err := conformanceRun(t, "echo "+conformanceDone+" #", revision, scenario)
		assert.ErrorContains(t, err, "Test Results:") // it was judged
	})
}

// eachConformanceRun runs a test for every scenario, as many at once as there are processors.
func eachConformanceRun(t *testing.T, test func(t *testing.T, revision string, scenario conformanceScenario)) {
	for _, set := range conformanceSets() {
		for _, scenario := range set.runs {
			t.Run(set.revision+"/"+scenario.name, func(t *testing.T) {
				t.Parallel()
				test(t, set.revision, scenario)
			})
		}
	}
}

// conformanceRun runs one scenario, alone, which is how the suite is strictest: a warning fails it, as do an error of the client and
// too long a time. Besides, the suite must have seen all there is to be seen, since it fails nobody who never came; and the client
// must have made all its calls, which some scenarios do not ask of it.
func conformanceRun(t *testing.T, command, revision string, scenario conformanceScenario) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	output, err := conformanceCommand(ctx, "client", "--command", command, "--scenario", scenario.name,
		"--spec-version", revision, "--output-dir", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	results := make(map[string][]byte) // by file
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	for i := 0; err == nil && i < len(paths); i++ {
		results[filepath.Base(paths[i])], err = os.ReadFile(paths[i])
	}
	var checks []struct{ Status string }
	if err == nil {
		err = json.Unmarshal(results["checks.json"], &checks)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	successes := 0
	for _, check := range checks {
		if check.Status == "SUCCESS" {
			successes++
		}
	}
	if successes != scenario.checks {
		return fmt.Errorf("%d checks, not %d\n%s", successes, scenario.checks, output)
	}
	if string(results["stdout.txt"]) != conformanceDone+"\n" {
		return fmt.Errorf("the client was not done: %s", results["stderr.txt"])
	}
	return nil
}

const conformanceFolder = "conformance/node_modules"

// conformanceCommand is a command of the suite. The client that it runs is this test binary in the mode of that name.
func conformanceCommand(ctx context.Context, args ...string) *exec.Cmd {
	bin := filepath.Join(peerDir, conformanceFolder, ".bin")
	command := exec.CommandContext(ctx, filepath.Join(bin, "node"), append([]string{filepath.Join(bin, "conformance")}, args...)...)
	command.Env = append(safeEnvironment(os.Environ()), "MCPAGENT_CHILD=conformance")
	command.WaitDelay = 5 * time.Second
	return command
}

// conformanceDone is what the client prints at the end.
const conformanceDone = "done"

// conformanceChild is the client, connected as the program connects. Which scenario it is decides only what is called.
func conformanceChild() int {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second) // the suite's own is 30, and it waits for the client to end
	defer cancel()
	server := Server{URL: os.Args[len(os.Args)-1]}
	client, err := server.Connect(ctx, ClientOptions{
		Roots: func(context.Context) ([]Root, error) { return nil, nil },
		Sample: func(context.Context, *SampleRequest) (*SampleResult, error) {
			return nil, errors.New("there is no model")
		},
		Elicit: func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
			return &ElicitResult{Action: "accept", Content: r.Defaults()}, nil
		},
	})
	if err == nil {
		err = errors.Join(conformanceSession(ctx, client, os.Getenv("MCP_CONFORMANCE_SCENARIO")), client.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(conformanceDone)
	return 0
}

// conformanceSession makes the calls that a scenario waits for.
func conformanceSession(ctx context.Context, client *Client, scenario string) error {
	tools, err := client.ListTools(ctx)
	if err != nil {
		return err
	}
	var calls []conformanceCall
	switch scenario {
	case "tools_call":
		calls = []conformanceCall{{"add_numbers", json.RawMessage(`{"a":5,"b":3}`)}}
	case "elicitation-sep1034-client-defaults", "sse-retry", "sep-2322-client-request-state", "http-standard-headers":
		for _, tool := range tools {
			calls = append(calls, conformanceCall{tool.Name, nil})
		}
	case "http-invalid-tool-headers": // of the tools, the valid one is to be left
		for _, tool := range tools {
			calls = append(calls, conformanceCall{tool.Name, json.RawMessage(`{"region":"north"}`)})
		}
	case "http-custom-headers":
		var given struct{ ToolCalls []conformanceCall }
		if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given); err != nil {
			return err
		}
		calls = given.ToolCalls
	case "json-schema-2020-12-preservation": // the schema of one tool is to be given to another
		for _, tool := range tools {
			if tool.Name == "json_schema_2020_12_tool" {
				schema := slices.Concat([]byte(`{"schema":`), tool.InputSchema, []byte(`}`))
				calls = append(calls, conformanceCall{"json_schema_echo", schema})
			}
		}
	}
	for _, call := range calls {
		if _, err := client.CallTool(ctx, call.Name, call.Arguments, nil); err != nil {
			return err
		}
	}
	if scenario == "http-standard-headers" {
		return conformanceRead(ctx, client)
	}
	return nil
}

type conformanceCall struct {
	Name      string
	Arguments json.RawMessage
}

// conformanceRead gets every resource and every prompt.
func conformanceRead(ctx context.Context, client *Client) error {
	resources, err := client.ListResources(ctx)
	for i := 0; err == nil && i < len(resources); i++ {
		_, err = client.ReadResource(ctx, resources[i].URI)
	}
	if err != nil {
		return err
	}
	prompts, err := client.ListPrompts(ctx)
	for i := 0; err == nil && i < len(prompts); i++ {
		_, err = client.GetPrompt(ctx, prompts[i].Name, nil)
	}
	return err
}
