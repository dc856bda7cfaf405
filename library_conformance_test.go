package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestLibraryConformance: the official conformance suite, which is a client here, finds no fault with the library over HTTP. Most
// of its scenarios need a server that is made for them; these are the others. Of one that asks for more than any
// server has to have, the checks that the suite itself calls not testable are left out.
func TestLibraryConformance(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, conformanceFolder)
	for _, test := range []struct {
		revision, scenario string
		checks             int
	}{
		{"2025-11-25", "server-initialize", 3},
		{"2025-11-25", "server-session-lifecycle", 3},
		{"2025-11-25", "ping", 2},
		{"2025-11-25", "tools-list", 3},
		{"2025-11-25", "resources-list", 2},
		{"2025-11-25", "prompts-list", 2},
		{"2025-11-25", "dns-rebinding-protection", 2},
		{"2026-07-28", "server-stateless", 24},
		{"2026-07-28", "http-header-validation", 14},
		{"2026-07-28", "caching", 8},
		{"2026-07-28", "sep-2164-resource-not-found", 4},
		{"2026-07-28", "tools-list", 4},
		{"2026-07-28", "resources-list", 2},
		{"2026-07-28", "prompts-list", 2},
		{"2026-07-28", "dns-rebinding-protection", 2},
	} {
		t.Run(test.revision+"/"+test.scenario, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(NewLibraryHTTP(libSmall()))
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dir := t.TempDir()
			// Its exit status says nothing more than the checks.
			output, _ := conformanceCommand(ctx, "server", "--url", server.URL, "--scenario", test.scenario,
				"--spec-version", test.revision, "--output-dir", dir).CombinedOutput()
			files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
			assert.NilError(t, err)
			assert.Equal(t, len(files), 1, "%s", output)
			text, err := os.ReadFile(files[0])
			assert.NilError(t, err)
			var checks []struct{ ID, Status, ErrorMessage string }
			assert.NilError(t, json.Unmarshal(text, &checks))
			successes := 0
			for _, check := range checks {
				switch {
				case check.Status == "SUCCESS":
					successes++
				case check.Status == "SKIPPED" || strings.HasPrefix(check.ErrorMessage, "Not testable: server does not list the diagnostic tool "):
				default:
					t.Errorf("%s: %s: %s", check.ID, check.Status, check.ErrorMessage)
				}
			}
			assert.Equal(t, successes, test.checks)
		})
	}
}
