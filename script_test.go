package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestScripts runs testdata/scripts, which say what users see of the program. A script is a line of comment that says
// what it pins, commands, and files ("-- name --", as txtar has them) that are written to its folder at the beginning.
//
// Words of a command are quoted as in 'it”s'. $NAME outside of quotes is a variable; where a regexp is expected, it
// stands for itself. In a regexp ^ and $ match at lines. A FILE can also be stdout, stderr, all (both, and the logs
// and the file trace), text (stdout or the terminal, without what draws and what is said of slow starts) or
// requestN (the Nth request to the model, as JSON, with its Authorization header as member "authorization").
//
//	each NAME VALUE...          run the script once for each value
//	need WHAT...                skip without these programs or without node_modules or venv of testdata/peers
//	env NAME=VALUE...           of the following runs; NAME=<FILE is the content of the file
//	cd DIR                      where the following runs start; HOME stays the script's folder
//	mkdir DIR, mkfifo FILE, cp A B, ln A B, rm FILE, chmod N FILE
//	model FILE                  a new model server; its replies: see scriptReplies
//	reached NAME, release NAME  wait until the model holds a reply there; let it answer
//	gossip                      a server at http://$GOSSIP that repeats the Authorization header
//	expire                      ends its session
//	tasks                       a server at http://$TASKS whose tools run as tasks; the tool hang until
//	finish                      it is done, or
//	lose                        the server has forgotten its tasks
//	real FILE                   a server of testdata/peers over HTTP, at $REAL
//	protected                   the same at $PROTECTED for those who have logged in; its tokens are hidden, as by hide
//	visit URL FILE              open an address as a browser does, and keep the page that it ends at
//	consent URL NAME            open it, and keep the address that the browser is then sent to
//	refuse                      the person says no from now on, or after another refuse yes again
//	forget                      no token, and no refresh token, is valid any longer
//	demand SCOPE METHOD         the server wants this scope for requests of this method
//	reject                      the server refuses every token
//	agree                       neither does the server want scopes, nor does it refuse a token
//	stdin FILE|TEXT             for the next run
//	[!?] mcpagent ARG...        run the program to its end, which is a failure with !, and may be with ?
//	start mcpagent ARG...       start it
//	back                        what follows is about what was started, and not about the last run
//	terminal COLUMNS mcpagent   start it on a terminal; the variable ERRORS names a file for stderr
//	expect REGEXP [NAME]        wait until stderr, or the terminal, has a match after the last one; keep its group
//	type TEXT, key ^C|TEXT      type a line, or keys; ^[ is escape
//	say TEXT...                 wait for the chat's prompt and type the line
//	signal [-repeat] INT|TERM|KILL   send a signal to what was started; or many, until it ends
//	signal CONT                 the same, and its terminal has the mode that a shell has given it meanwhile
//	wait                        wait for the end of what was started
//	status N                    the exit status
//	fails N REGEXP              the status, nothing on stdout, and one line on stderr: mcpagent: …
//	[!] stdout|stderr REGEXP    stdout has, or has not, a match; -count=N: so many of them
//	[!] grep REGEXP FILE        the same of a file
//	cmp FILE FILE               they are equal, the first with TIME for durations and $WORK for the folder
//	json FILE [PATH VALUE]      it is JSON, with the value at a path such as calls.0.name; -1 is the last, # the number
//	                            of elements, ? the names of members. ~VALUE is a regexp
//	requests N                  the model has been asked so often
//	[!] exists FILE, mode N FILE
//	hide SECRET...              no output, log or trace of a later run has its beginning or its end
func TestScripts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts use sh and signals")
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("the scripts need a shell: sh is not on PATH")
	}
	files, err := filepath.Glob("testdata/scripts/*.txt")
	assert.NilError(t, err)
	assert.Check(t, len(files) > 0)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			a := parseArchive(string(text))
			assert.Check(t, strings.HasPrefix(a.script, "# "), "a script says in its first line what it pins")
			for _, variables := range a.variants() {
				t.Run(strings.Join(variables, " "), func(t *testing.T) {
					checkLeaks(t)
					assert.NilError(t, runScript(t, a, variables))
				})
			}
			if *rewriteTranscripts {
				assert.NilError(t, os.WriteFile(file, []byte(a.String()), 0o644))
			}
		})
	}
}

// scriptTB is a test that is to fail.
type scriptTB struct {
	testing.TB
	failed string
}

func (t *scriptTB) Errorf(format string, args ...any) { t.failed += fmt.Sprintf(format, args...) }

// A script fails where something is not as it says.
func TestScriptsFail(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("see TestScripts; processes are counted on Linux")
	}
	for _, test := range []struct{ script, want string }{
		{"help", "no such command"},
		{"! cd x", "no such command"},
		{"cmp a", "no such command"},
		{"? exists a", "no such command"},
		{"status 0", "exit status -1"},
		{"signal INT", "it is not running"},
		{"mcpagent 'x", "inside quotes"},
		{"mcpagent $NOWHERE", "there is no variable NOWHERE"},
		{"mcpagent -nonsense", "exit status 2"},
		{"! mcpagent version", "exit status 0"},
		{"mcpagent version\nstatus 1", "exit status 0"},
		{"mcpagent version\nstdout nothing", "0 matches"},
		{"mcpagent version\n! stdout mcpagent", "1 matches"},
		{"mcpagent version\nstdout -count=2 mcpagent", "1 matches"},
		{"mcpagent version\nstdout mcpagent x", "it takes a regexp"},
		{"mcpagent version\nstderr .", "0 matches"},
		{"grep . missing", "no such file"},
		{"! mcpagent -nonsense\nfails 2 other", "not one line"},
		{"! mcpagent -nonsense\nfails 1 nonsense", "exit status 2"},
		{"mcpagent version\nfails 0 mcpagent", "not one line"},
		{"mcpagent version\ncmp stdout b\n-- b --\nx\n", "and not"},
		{"mcpagent version\ncp stdout a\ncmp b a\n-- b --\nx\n", "and not"},
		{"exists a", "it is not so"},
		{"! exists a\n-- a --\n", "it is not so"},
		{"mode 644 a\n-- a --\n", "another mode"},
		{"mcpagent version\njson stdout", "invalid character"},
		{"mcpagent tools -json\njson stdout 0.name other", "0.name is"},
		{"mcpagent tools -json\njson stdout 0.name ~^other", "0.name is"},
		{"mcpagent tools -json\njson stdout 99.name x", "there is no element 99"},
		{"mcpagent tools -json\njson stdout 0.name.x y", "there is no x"},
		{"hide mcpagent\nmcpagent version", "a secret is in"},
		{"model m\n-- m --\ntext hi\n", "1 replies of the model were not used"},
		{"model m\n-- m --\nsing a song\n", "the model cannot do this: sing"},
		{"model m\nmcpagent -q hi\n-- m --\ncall search_chunks {}\n", "the script has no reply"},
		{"model m\nmcpagent -q hi\nrequests 2\n-- m --\ntext hi\n", "had 1 requests"},
		{"model m\nmcpagent -q hi\njson request2\n-- m --\ntext hi\n", "had 1 requests"},
		{"requests 0", "no such file"},
		{"env PATIENCE=10ms\nreached x", "has not been asked"},
		{"env PATIENCE=10ms\nstart mcpagent version\nexpect never", "never had it"},
		{"mcpagent version\nsignal INT", "already finished"},
		{"start mcpagent serve -http :0\nexpect MCP\nenv PATIENCE=10ms\nmcpagent version", "left over"},
		{"terminal 80 mcpagent version\nwait\nstatus 3", "exit status 0"},
		{"terminal 80 mcpagent version\nwait\ncmp text s\n-- s --\nx\n", "and not"},
	} {
		t.Run(test.script, func(t *testing.T) {
			tb := &scriptTB{TB: t}
			err := runScript(tb, parseArchive(test.script), nil)
			assert.Check(t, is.Contains(fmt.Sprint(err, tb.failed), test.want))
		})
	}
	variants := parseArchive("each A 1 2\neach B 3 4\n").variants()
	assert.DeepEqual(t, variants, [][]string{{"A=1", "B=3"}, {"A=1", "B=4"}, {"A=2", "B=3"}, {"A=2", "B=4"}})
	a := parseArchive("x\n-- a --\n1\n-- b --\n")
	assert.Equal(t, a.String(), "x\n-- a --\n1\n-- b --\n")
	assert.Equal(t, len(a.files), 2)
}

// archive is a script and its files.
type archive struct {
	script string
	files  []archiveFile
}

type archiveFile struct{ name, text string }

var archiveMark = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

func parseArchive(text string) *archive {
	marks := archiveMark.FindAllStringSubmatchIndex(text, -1)
	a := &archive{script: text}
	for i, m := range marks {
		end := len(text)
		if i == 0 {
			a.script = text[:m[0]]
		}
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		a.files = append(a.files, archiveFile{text[m[2]:m[3]], text[m[1]:end]})
	}
	return a
}

func (a *archive) String() string {
	text := a.script
	for _, f := range a.files {
		text += "-- " + f.name + " --\n" + f.text
	}
	return text
}

// variants returns the variables of each run that the lines "each" ask for.
func (a *archive) variants() [][]string {
	all := [][]string{nil}
	for line := range strings.Lines(a.script) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "each" {
			continue
		}
		var more [][]string
		for _, variables := range all {
			for _, value := range words[2:] {
				more = append(more, append(slices.Clone(variables), words[1]+"="+value))
			}
		}
		all = more
	}
	return all
}

const (
	scriptKey   = "planted-key-0123456789abcdef"
	noRaceSleep = "GORACE=atexit_sleep_ms=0" // a program with the race detector ends a second late otherwise
)

// script is one run of a script.
type script struct {
	t       testing.TB
	archive *archive
	work    string // the folder of the script, and HOME
	bin     string // a folder on PATH, with peer
	dir     string // where the program starts
	env     map[string]string
	stdin   string      // of the next run
	program *programRun // the last one that was started
	started *programRun // the last one that "start" started
	hidden  []string
	oauth   *oauthServer // nil if there is none
	gossip  *scriptPeer  // nil if there is none
	tasks   *scriptPeer  // likewise
	model   *modelServer
	over    chan struct{} // closed by end
	end     func()        // lets all replies of the models end

	mu    sync.Mutex               // guards the following, which replies of the model use
	calls int                      // of tools that the model has asked for: their ids
	gates map[string]chan struct{} // "reached NAME" and "release NAME", closed when that has happened
}

// runScript runs a script. The error says which line failed.
func runScript(t testing.TB, a *archive, variables []string) error {
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		return err
	}
	peers, err := filepath.Abs(peerDir)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s := &script{t: t, archive: a, work: work, bin: t.TempDir(), dir: work, program: &programRun{command: new(exec.Cmd)},
		over: make(chan struct{}), gates: make(map[string]chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.over) })
	s.env = map[string]string{
		"WORK": work, "BIN": s.bin, "PEERS": peers, "SELF": self, "PATIENCE": "30s", "KEY": scriptKey,
	}
	for _, v := range append(programEnvironment(work), variables...) {
		name, value, _ := strings.Cut(v, "=")
		s.env[name] = value
	}
	s.env["PATH"] = s.bin + ":" + s.env["PATH"]
	peer := fmt.Sprintf("#!/bin/sh\n%s MCPAGENT_CHILD=peer-$1 exec '%s'\n", noRaceSleep, self)
	if err := os.WriteFile(filepath.Join(s.bin, "peer"), []byte(peer), 0o700); err != nil {
		return err
	}
	for _, f := range a.files {
		path := s.path(f.name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(f.text), 0o600))
		if err != nil {
			return err
		}
	}
	for i, line := range strings.Split(a.script, "\n") {
		if err := s.do(strings.TrimSpace(line)); err != nil {
			return fmt.Errorf("line %d: %s: %w", i+1, line, err)
		}
	}
	return s.endModel()
}

// do runs one line.
func (s *script) do(line string) error {
	if line == "" || line[0] == '#' {
		return nil
	}
	words, err := s.words(line)
	if err != nil {
		return err
	}
	not, maybe := words[0] == "!", words[0] == "?"
	if not || maybe {
		words = words[1:]
	}
	name, words := words[0], words[1:]
	// The least and the most words of a command, and whether ! can stand before it.
	form, ok := map[string]string{
		"each": "2 99", "need": "1 9", "env": "1 9", "cd": "1 1",
		"mkdir": "1 1", "mkfifo": "1 1", "cp": "2 2", "ln": "2 2", "rm": "1 1", "chmod": "2 2", "model": "1 1",
		"reached": "1 1", "release": "1 1", "gossip": "0 0", "expire": "0 0",
		"tasks": "0 0", "finish": "0 0", "lose": "0 0", "real": "1 1", "stdin": "1 1",
		"protected": "0 0", "visit": "2 2", "consent": "2 2", "refuse": "0 0",
		"forget": "0 0", "demand": "2 2", "reject": "0 0", "agree": "0 0",
		"mcpagent": "0 99 !", "start": "1 99", "back": "0 0",
		"terminal": "2 99", "expect": "1 2", "type": "1 1", "key": "1 1", "say": "1 1", "signal": "1 2", "wait": "0 0",
		"status": "1 1", "fails": "2 2", "stdout": "1 2 !", "stderr": "1 2 !", "grep": "2 3 !", "cmp": "2 2", "json": "1 3",
		"requests": "1 1", "exists": "1 1 !", "mode": "2 2", "hide": "1 9",
	}[name]
	var least, most int
	_, _ = fmt.Sscan(form, &least, &most)
	if !ok || len(words) < least || len(words) > most {
		return errors.New("no such command")
	}
	if not && !strings.HasSuffix(form, "!") || maybe && name != "mcpagent" {
		return errors.New("no such command with ! or ?")
	}
	switch name {
	case "each":
		return nil
	case "need":
		return s.need(words)
	case "env":
		return s.setEnv(words)
	case "cd":
		s.dir = s.path(words[0])
		return nil
	case "mkdir":
		return os.Mkdir(s.path(words[0]), 0o700)
	case "cp":
		text, err := s.read(words[0])
		return cmp.Or(err, os.WriteFile(s.path(words[1]), []byte(text), 0o600))
	case "mkfifo":
		return exec.Command("mkfifo", s.path(words[0])).Run()
	case "ln":
		return os.Symlink(words[0], s.path(words[1]))
	case "rm":
		return os.Remove(s.path(words[0]))
	case "chmod":
		mode, err := strconv.ParseUint(words[0], 8, 9)
		return cmp.Or(err, os.Chmod(s.path(words[1]), fs.FileMode(mode)))
	case "model":
		return s.startModel(words[0])
	case "reached":
		select {
		case <-s.gate(line):
			return nil
		case <-time.After(s.patience()):
			return errors.New("the model has not been asked for that reply")
		}
	case "release":
		close(s.gate(line))
		return nil
	case "gossip":
		s.gossip = new(scriptPeer)
		server := httptest.NewServer(s.gossip)
		s.t.Cleanup(server.Close)
		s.env["GOSSIP"] = strings.TrimPrefix(server.URL, "http://")
		return nil
	case "tasks":
		s.tasks = &scriptPeer{mode: "tasks"}
		server := httptest.NewServer(s.tasks)
		s.t.Cleanup(server.Close)
		s.env["TASKS"] = strings.TrimPrefix(server.URL, "http://")
		return nil
	case "finish":
		s.tasks.finished.Store(true)
		return nil
	case "lose":
		s.tasks.begun.Clear()
		return nil
	case "real":
		s.env["REAL"] = startPeerHTTP(s.t, peerScript(s.t, words[0], "http")).url
		return nil
	case "expire":
		s.gossip.session.Add(1)
		return nil
	case "protected":
		s.oauth = startOAuthServer(s.t, new(scriptPeer))
		s.env["PROTECTED"] = s.oauth.Resource
		return nil
	case "visit":
		page, _, err := visit(words[0], true)
		return cmp.Or(err, os.WriteFile(s.path(words[1]), []byte(page), 0o600))
	case "consent":
		_, address, err := visit(words[0], false)
		s.env[words[1]] = address
		return err
	case "refuse":
		s.oauth.set(func() {
			if s.oauth.Respond == nil {
				s.oauth.Respond = refuseLogin
			} else {
				s.oauth.Respond = nil
			}
		})
		return nil
	case "forget":
		s.oauth.set(func() { clear(s.oauth.access); clear(s.oauth.refresh) })
		return nil
	case "demand":
		s.oauth.set(func() {
			s.oauth.NeedsMore = func(r *http.Request) string { return scopeIfMethod(r, words[0], words[1]) }
		})
		return nil
	case "agree":
		s.oauth.set(func() { s.oauth.NeedsMore, s.oauth.Answer = nil, nil })
		return nil
	case "reject":
		s.oauth.set(func() { s.oauth.Answer = refuseTokens })
		return nil
	case "stdin":
		s.stdin = words[0] + "\n"
		if text, err := s.read(words[0]); err == nil {
			s.stdin = text
		}
		return nil
	case "mcpagent":
		err := cmp.Or(s.start(0, words), s.wait())
		if failed := s.program.status() != 0; err == nil && !maybe && failed != not {
			err = s.seen("exit status %d", s.program.status())
		}
		return err
	case "start":
		err := s.start(0, words[1:])
		s.started = s.program
		return err
	case "back":
		s.program = s.started
	case "terminal":
		columns, err := strconv.ParseUint(words[0], 10, 16)
		return cmp.Or(err, s.start(uint16(columns), words[2:]))
	case "expect":
		return s.expect(words)
	case "say":
		return cmp.Or(s.expect([]string{`(\n|\x1b\[J|\x1b\[\?2004h)(\x1b\[1m)?>(\x1b\[0m)? `}), s.program.keys(words[0]+"\n"))
	case "type":
		return s.program.keys(words[0] + "\n")
	case "key":
		return s.program.keys(words[0])
	case "signal":
		return s.signal(words)
	case "wait":
		return s.wait()
	case "status":
		return s.isStatus(words[0])
	case "fails":
		return s.fails(words[0], words[1])
	case "stdout", "stderr":
		return s.grep(not, append(words, name))
	case "grep":
		return s.grep(not, words)
	case "cmp":
		return s.compare(words[0], words[1])
	case "json":
		return s.isJSON(words)
	case "requests":
		if s.model == nil || strconv.Itoa(len(s.model.Requests())) != words[0] {
			_, err := s.read("request0") // says how many
			return cmp.Or(err, errors.New("there is no model"))
		}
	case "exists":
		if _, err := os.Stat(s.path(words[0])); errors.Is(err, fs.ErrNotExist) != not {
			return errors.New("it is not so")
		}
	case "mode":
		path, _ := filepath.Glob(s.path(words[1]))
		info, err := os.Stat(strings.Join(path, " "))
		if err != nil || fmt.Sprintf("%o", info.Mode().Perm()) != words[0] {
			return errors.New("it has another mode")
		}
	case "hide":
		s.hidden = append(s.hidden, words...)
	}
	return nil
}

var scriptVariable = regexp.MustCompile(`^\$(\w+)`)

// words splits a line.
func (s *script) words(line string) (words []string, err error) {
	command, _, _ := strings.Cut(strings.TrimPrefix(line, "! "), " ")
	matches := slices.Contains([]string{"expect", "stdout", "stderr", "grep", "fails"}, command)
	word, begun, quoted := "", false, false
	for i := 0; i < len(line); i++ {
		variable := scriptVariable.FindStringSubmatch(line[i:])
		switch c := line[i]; {
		case c == '\'' && quoted && strings.HasPrefix(line[i+1:], "'"):
			word += "'"
			i++
		case c == '\'':
			begun, quoted = true, !quoted
		case c == ' ' && !quoted:
			if begun {
				words = append(words, word)
			}
			word, begun = "", false
		case variable != nil && !quoted:
			value, ok := s.env[variable[1]]
			if !ok {
				return nil, fmt.Errorf("there is no variable %s", variable[1])
			}
			if matches {
				value = regexp.QuoteMeta(value)
			}
			word, begun = word+value, true
			i += len(variable[1])
		default:
			word, begun = word+line[i:i+1], true
		}
	}
	if begun {
		words = append(words, word)
	}
	if quoted {
		return nil, errors.New("the line ends inside quotes")
	}
	return words, nil
}

func (s *script) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.work, name)
}

// scopeIfMethod returns the scope that a request needs if only those of one method need it.
func scopeIfMethod(r *http.Request, scope, method string) string {
	text, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	if bytes.Contains(text, []byte(`"`+method+`"`)) {
		return scope
	}
	return ""
}

// patience is how long something is waited for. The scripts that must fail have less of it.
func (s *script) patience() time.Duration {
	patience, _ := time.ParseDuration(s.env["PATIENCE"])
	return patience
}

// read returns a file's text.
func (s *script) read(name string) (string, error) {
	var number int
	n, _ := fmt.Sscanf(name, "request%d", &number)
	switch {
	case n == 1 && s.model != nil:
		requests := s.model.Requests()
		if number < 1 || number > len(requests) {
			return "", fmt.Errorf("the model has had %d requests", len(requests))
		}
		r := requests[number-1]
		key := fmt.Sprintf(`{"authorization":%q,`, r.Header.Get("Authorization"))
		return strings.Replace(string(r.Body), "{", key, 1), nil
	case name == "stdout":
		return s.program.stdout.String(), nil
	case name == "stderr":
		return s.program.shown(), nil
	case name == "all":
		all := s.program.stdout.String() + s.program.shown()
		logs, _ := filepath.Glob(filepath.Join(s.work, ".cache/mcpagent/*"))
		for _, file := range append(logs, s.path("trace")) {
			text, err := os.ReadFile(file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
			all += string(text)
		}
		return all, nil
	case name == "text":
		text := cmp.Or(s.program.stdout.String(), s.program.shown())
		screen := newVT(300, 100) // wider than any row that the program leaves to the terminal to fold
		_, _ = screen.Write([]byte(text))
		text = screen.Text() + "\n"
		return regexp.MustCompile(`(?m)^(still starting: |server \S+ is ready: ).*\n`).ReplaceAllString(text, ""), nil
	}
	text, err := os.ReadFile(s.path(name))
	return string(text), err
}

// need skips the script where something is missing: peers, a free port, as free:11434, or a program, which is also
// linked to the folder $BIN.
func (s *script) need(words []string) error {
	for _, name := range words {
		if name == "node_modules" || name == "venv" {
			requirePeers(s.t, name)
			continue
		}
		if port, isPort := strings.CutPrefix(name, "free:"); isPort {
			connection, err := net.Dial("tcp", "localhost:"+port)
			if err == nil {
				_ = connection.Close()
				s.t.Skipf("needs port %s, on which a program of this machine listens", port)
			}
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			s.t.Skipf("needs %s, which is not on PATH", name)
		}
		if err := os.Symlink(path, filepath.Join(s.bin, name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) setEnv(words []string) error {
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return errors.New("it is not NAME=VALUE")
		}
		if file, ok := strings.CutPrefix(value, "<"); ok {
			text, err := s.read(file)
			if err != nil {
				return err
			}
			value = strings.TrimSuffix(text, "\n")
		}
		s.env[name] = value
	}
	return nil
}

// start starts the program; on a terminal, if that has columns.
func (s *script) start(columns uint16, args []string) error {
	var variables []string
	for name, value := range s.env {
		variables = append(variables, name+"="+value)
	}
	s.program = newProgram(s.t, s.env["HOME"], variables, args...)
	s.program.command.Dir, s.program.patience = s.dir, s.patience()
	if s.stdin != "" {
		s.program.command.Stdin = strings.NewReader(s.stdin)
	}
	s.stdin = ""
	if columns > 0 {
		p, ok := any(s.program).(interface{ openTerminal(columns uint16) error })
		if !ok {
			s.t.Skip("the tests open terminals on Linux")
		}
		if err := p.openTerminal(columns); err != nil {
			return err
		}
	}
	return s.program.start()
}

// wait waits for the program's end and looks for what must not be in its output.
func (s *script) wait() error {
	if err := s.program.wait(); err != nil {
		return err
	}
	text, err := s.read("all")
	for _, secret := range slices.Concat(s.hidden, s.oauth.tokens()) {
		n := min(12, len(secret))
		if at := max(strings.Index(text, secret[:n]), strings.Index(text, secret[len(secret)-n:])); at >= 0 {
			return fmt.Errorf("a secret is in: …%s", text[max(0, at-200):min(len(text), at+60)])
		}
	}
	return err
}

// seen is an error with the output.
func (s *script) seen(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	return fmt.Errorf("%s\nstdout:\n%s\nstderr:\n%s", what, s.program.stdout.String(), s.program.shown())
}

func (s *script) isStatus(want string) error {
	if got := strconv.Itoa(s.program.status()); got != want {
		return s.seen("exit status %s", got)
	}
	return nil
}

func (s *script) fails(status, pattern string) error {
	if err := s.isStatus(status); err != nil {
		return err
	}
	one, err := regexp.Compile(`^mcpagent: .*(?:` + pattern + `).*\n$`)
	if err == nil && (!one.MatchString(s.program.shown()) || s.program.stdout.Len() > 0) {
		err = s.seen("this is not one line on stderr that matches")
	}
	return err
}

func (s *script) expect(words []string) error {
	pattern, err := regexp.Compile("(?m)" + words[0])
	if err != nil {
		return err
	}
	match, err := s.program.expect(pattern)
	if err == nil && len(words) > 1 && len(match) > 1 {
		s.env[words[1]] = match[1]
	}
	return err
}

// grep checks that the last word, a file, has a match of the word before it: so many, if -count=N is first.
func (s *script) grep(not bool, words []string) error {
	count := -1
	if number, ok := strings.CutPrefix(words[0], "-count="); ok {
		var err error
		if count, err = strconv.Atoi(number); err != nil {
			return err
		}
		words = words[1:]
	}
	if len(words) != 2 {
		return errors.New("it takes a regexp")
	}
	text, err := s.read(words[1])
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile("(?m)" + words[0])
	if err != nil {
		return err
	}
	switch n := len(pattern.FindAllString(text, -1)); {
	case count >= 0 && n != count || count < 0 && (n == 0) != not:
		return fmt.Errorf("%d matches in\n%s", n, text)
	}
	return nil
}

// steady is a text without what is different in each run: durations, folders, what a terminal shows of a Ctrl-C, and
// how much of a call's arguments there was room for.
func (s *script) steady(text string) string {
	text = strings.ReplaceAll(text, s.work, "$WORK")
	for _, r := range [][2]string{
		{`\^C`, ""}, {`mcpagent-\d+`, "mcpagent-NUMBER"}, {`--- \d{4}-\S+, process \d+`, "--- RUN"},
		{`\b[0-9.]+(ms|µs|s)\b`, "TIME"}, {`(TIME, .* \{.{8}).*…\n`, "$1…\n"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// compare compares two files; with -rewrite it takes the first for the second.
func (s *script) compare(got, want string) error {
	text, err := s.read(got)
	wanted, missing := s.read(want)
	if err := cmp.Or(err, missing); err != nil {
		return err
	}
	text = s.steady(text)
	for i := range s.archive.files {
		if f := &s.archive.files[i]; f.name == want && *rewriteTranscripts {
			f.text = text
			return nil
		}
	}
	if text != s.steady(wanted) {
		return fmt.Errorf("%s is\n%s\nand not\n%s", got, text, wanted)
	}
	return nil
}

// isJSON checks that a file is JSON, and the value at a path in it.
func (s *script) isJSON(words []string) error {
	text, err := s.read(words[0])
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil || len(words) < 3 {
		return err
	}
	for name := range strings.FieldsFuncSeq(words[1], func(r rune) bool { return r == '.' }) {
		index, _ := strconv.Atoi(name)
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
			if name == "?" {
				value = strings.Join(slices.Sorted(maps.Keys(v)), " ")
			}
		case []any:
			if index < 0 {
				index += len(v)
			}
			if value = len(v); name != "#" && index < len(v) && index >= 0 {
				value = v[index]
			} else if name != "#" {
				return fmt.Errorf("there is no element %s in\n%s", name, text)
			}
		default:
			return fmt.Errorf("there is no %s in\n%s", name, text)
		}
	}
	got, ok := value.(string)
	if !ok {
		got = string(modelJSON(value))
	}
	pattern, ok := strings.CutPrefix(words[2], "~")
	if !ok {
		pattern = "^(?:" + regexp.QuoteMeta(words[2]) + ")$"
	}
	if match, err := regexp.MatchString(pattern, got); err != nil || !match {
		return fmt.Errorf("%s is %q, err %v", words[1], got, err)
	}
	return nil
}

// signal sends a signal to the program.
func (s *script) signal(words []string) error {
	signal, ok := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM,
		"KILL": os.Kill}[words[len(words)-1]]
	if words[0] == "CONT" && s.program.keyboard != nil {
		signal, ok = s.program.resume()
	}
	if !ok {
		return errors.New("no such signal")
	}
	process := s.program.command.Process
	if process == nil {
		return errors.New("it is not running")
	}
	s.program.killed.Store(signal == os.Kill)
	if s.program.columns > 0 { // the shell's child
		for pid, of := range s.program.processes() {
			if strings.Contains(of.environment, "MCPAGENT_CHILD=main\x00") && !strings.HasPrefix(of.line, "sh ") {
				process, _ = os.FindProcess(pid)
			}
		}
	}
	if words[0] == "-repeat" { // the first of them may not have arrived yet, and two that wait to be delivered are one
		s.program.reader.Go(func() {
			for process.Signal(signal) == nil {
				time.Sleep(time.Millisecond)
			}
		})
		return nil
	}
	return process.Signal(signal)
}

// gate returns what "reached NAME" or "release NAME" is about.
func (s *script) gate(what string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[what] == nil {
		s.gates[what] = make(chan struct{})
	}
	return s.gates[what]
}

// startModel starts a model server that has its replies from a file, where blank lines separate them.
func (s *script) startModel(file string) error {
	text, err := s.read(file)
	if err := cmp.Or(err, s.endModel()); err != nil {
		return err
	}
	var replies []modelReply
	var rest modelReply
	models := ""
	for block := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if list, ok := strings.CutPrefix(block, "models "); ok {
			models = list
			continue
		}
		reply := scriptReply{s, strings.Split(block, "\n")}
		for _, line := range reply.lines {
			if !scriptReplyLine.MatchString(line) {
				return fmt.Errorf("the model cannot do this: %s", line)
			}
		}
		if reply.lines[0] == "always" {
			rest = reply
		} else {
			replies = append(replies, reply)
		}
	}
	s.model = newModelServer(s.t, replies...)
	s.t.Cleanup(s.end) // before the server's own end, which waits for its replies
	s.model.mu.Lock()  // for the race detector, which does not know that another process sends the requests
	defer s.model.mu.Unlock()
	s.model.Rest, s.model.Models = rest, models
	s.env["MISTRAL_BASE_URL"], s.env["MISTRAL_API_KEY"] = s.model.URL, scriptKey
	return nil
}

// endModel checks that all that the model had to say was used.
func (s *script) endModel() error {
	if s.model == nil {
		return nil
	}
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	if n := len(s.model.script); n > 0 {
		return fmt.Errorf("%d replies of the model were not used", n)
	}
	return nil
}

// scriptReply is a reply of the model. Its lines are
//
//	text TEXT           the answer, or a line of it; a JSON string if it begins with a quotation mark
//	call NAME JSON      the model wants a call
//	calls N NAME JSON   the same, N times, with its number for $N
//	finish REASON       why it ended; null if the server does not say it
//	notools TEXT        the answer instead, if the request forbids calls
//	hold NAME           answer when the script releases NAME
//	stall               stream the text and do not end
//	always              (first) for every request after the other replies
//	models JSON         (first) no reply: the list of models that the server has
//
// or one of unauthorized, toolong, ratelimited SECONDS, unknown MODEL, page STATUS, error STATUS JSON (its message),
// which are failures. $RESULT is the last message of the request without the space around it, $WORK the script's
// folder.
type scriptReply struct {
	s     *script
	lines []string
}

var scriptReplyLine = regexp.MustCompile(`^(always|stall|unauthorized|toolong|text|` +
	`(finish|notools|hold|text|ratelimited|unknown) .*|calls \d+ \S+ .*|call \S+ .*|page \d+|error \d+ .*)$`)

func (r scriptReply) reply(w http.ResponseWriter, request *modelRequest) {
	fill := strings.NewReplacer("$RESULT", strings.TrimSpace(request.Last()), "$WORK", r.s.work).Replace
	var answer modelAnswer
	var text []string
	for _, line := range r.lines {
		word, rest, _ := strings.Cut(line, " ")
		number, after, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(number)
		switch word {
		case "text":
			_ = json.Unmarshal([]byte(rest), &rest)
			text = append(text, fill(rest))
		case "call":
			answer.Calls = append(answer.Calls, r.call(fill(rest)))
		case "calls":
			for i := range n {
				answer.Calls = append(answer.Calls, r.call(strings.ReplaceAll(fill(after), "$N", strconv.Itoa(i))))
			}
		case "finish":
			answer.Finish = rest
		case "notools":
			if request.ToolChoice == "none" {
				answer, text = modelAnswer{}, []string{rest}
			}
		case "hold":
			close(r.s.gate("reached " + rest))
			select {
			case <-r.s.gate("release " + rest):
			case <-r.s.over:
			}
		case "stall":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", modelJSON(strings.Join(text, "\n")))
			http.NewResponseController(w).Flush()
			<-r.s.over
			return
		case "always":
		default:
			failure := map[string]func() modelReply{
				"unauthorized": modelUnauthorized,
				"toolong":      modelContextTooLong,
				"ratelimited":  func() modelReply { return modelRateLimited(rest) },
				"unknown":      func() modelReply { return modelUnknown(rest) },
				"page":         func() modelReply { return modelPage(n) },
				"error":        func() modelReply { return modelError(n, "auth", "", json.RawMessage(after)) },
			}[word]
			failure().reply(w, request)
			return
		}
	}
	answer.Content = strings.Join(text, "\n")
	answer.reply(w, request)
}

func (r scriptReply) call(text string) ToolCall {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.calls++
	name, arguments, _ := strings.Cut(text, " ")
	return modelCall(fmt.Sprintf("call%05d", r.s.calls), name, arguments)
}

// programRun is a run of the program, as its users run it.
type programRun struct {
	killed   atomic.Bool // by SIGKILL: it cannot put its terminal back
	t        testing.TB
	command  *exec.Cmd
	stdout   bytes.Buffer
	log      programLog    // stderr, or all that a terminal shows
	at       int           // the end of the last match of expect
	home     string        // what tells the processes of this run from all others
	patience time.Duration // how long it is waited for
	reader   sync.WaitGroup

	columns  int      // of the terminal; 0 if there is none
	keyboard *os.File // the terminal's other side
	begun    func()   // to be called after the start, if not nil

	// resume gives the terminal the mode that it had first, as a shell does when something stops the program, and
	// returns the signal to go on.
	resume func() (goOn os.Signal, ok bool)
}

// programLog is the program's stderr as it grows.
type programLog struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // has something in it since text was read
}

func (l *programLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(text)
	select {
	case l.grown <- struct{}{}:
	default:
	}
	return len(text), nil
}

func (l *programLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ReplaceAll(l.text.String(), "\r\n", "\n") // as terminals have it
}

// programEnvironment is what any process needs, and what makes the test binary the program.
func programEnvironment(home string) []string {
	return []string{
		"MCPAGENT_CHILD=main", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "USERPROFILE=" + home, "TMPDIR=" + home,
		"SYSTEMROOT=" + os.Getenv("SYSTEMROOT"), noRaceSleep,
	}
}

// newProgram is the program, ready to start, with an environment of nothing but these variables. It ends within a
// minute, whatever it does.
func newProgram(t testing.TB, home string, variables []string, args ...string) *programRun {
	t.Helper()
	path, err := os.Executable()
	assert.NilError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p := &programRun{t: t, command: exec.CommandContext(ctx, path, args...), home: home, patience: 30 * time.Second}
	p.log.grown = make(chan struct{}, 1)
	p.command.Env, p.command.Dir = variables, home
	p.command.Stdout, p.command.Stderr = &p.stdout, &p.log
	p.command.WaitDelay = 10 * time.Second
	return p
}

// start starts the program. A test that fails leaves nothing of it, either.
func (p *programRun) start() error {
	p.t.Cleanup(func() {
		if p.command.Process != nil && p.command.ProcessState == nil { // the test did not wait for it
			_ = p.command.Process.Kill()
			_ = p.command.Wait()
		}
		for pid := range p.processes() {
			if process, err := os.FindProcess(pid); err == nil {
				_ = process.Kill()
				_ = process.Release()
			}
		}
		p.reader.Wait()
	})
	err := p.command.Start()
	if p.begun != nil {
		p.begun()
	}
	return err
}

// shown is stderr, or what the terminal got: while the program runs, as far as it was expected.
func (p *programRun) shown() string {
	if text := p.log.String(); p.command.ProcessState != nil {
		return text
	} else {
		return text[:p.at]
	}
}

// expect waits until stderr has a match after the last one, and returns it with its groups.
func (p *programRun) expect(pattern *regexp.Regexp) ([]string, error) {
	late := time.After(p.patience)
	for {
		text := p.log.String()
		if m := pattern.FindStringSubmatchIndex(text[p.at:]); m != nil {
			match := pattern.FindStringSubmatch(text[p.at:])
			p.at += m[1]
			return match, nil
		}
		select {
		case <-p.log.grown:
		case <-late:
			return nil, fmt.Errorf("stderr, or the terminal, never had it:\n%s", text[p.at:])
		}
	}
}

// keys types on the terminal.
func (p *programRun) keys(text string) error {
	if p.keyboard == nil {
		return errors.New("there is no terminal")
	}
	keys := strings.NewReplacer("^A", "\x01", "^C", "\x03", "^D", "\x04", "^H", "\b", "^J", "\n", "^L", "\f", "^U", "\x15",
		"^Z", "\x1a", "^[", "\x1b", `\n`, "\r", "\n", "\r") // Enter gives a carriage return
	_, err := p.keyboard.WriteString(keys.Replace(text))
	return err
}

// wait waits for the program. None of its processes may be left.
func (p *programRun) wait() error {
	var exit *exec.ExitError
	if err := p.command.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("the program did not end: %w\nstderr: %s", err, p.shown())
	}
	late := time.Now().Add(p.patience)
	for processes := p.processes(); len(processes) > 0; processes = p.processes() {
		if time.Now().After(late) {
			return fmt.Errorf("left over: %v", processes)
		}
		time.Sleep(time.Millisecond)
	}
	p.reader.Wait()
	return nil
}

// status is the exit status: -1 while the program runs, and if a signal ended it.
func (p *programRun) status() int { return p.command.ProcessState.ExitCode() }

// end is wait, for tests in Go.
func (p *programRun) end() int {
	p.t.Helper()
	assert.NilError(p.t, p.wait())
	return p.status()
}

// programProcess is a process of a run: its command line and its environment.
type programProcess struct{ line, environment string }

// processes are those, by process id, that have the run's HOME, which all inherit and no other process has.
// (On Linux.)
func (p *programRun) processes() map[int]programProcess {
	all := make(map[int]programProcess)
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environment, _ := os.ReadFile(file) // of a process that has ended there is none
		if environment = append(environment, 0); bytes.Contains(environment, []byte("HOME="+p.home+"\x00")) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			all[pid] = programProcess{string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})), string(environment)}
		}
	}
	return all
}
