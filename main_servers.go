// main_servers.go - the servers of a run: how each is started, and waited for.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// servers are the servers of a run. open makes their host, and the host starts each server when it
// is needed.
type servers struct {
	settings  *serverSettings
	output    *output
	config    *configuration
	requests  *serverRequests // answers what servers ask of the user and of the model
	processes *processes      // gets each process that is started
	logins    *logins
	trace     *trace
	tasks     *keptTasks

	opened time.Time
	host   *Host
	logs   map[string]*serverLog  // by the server's name
	strays map[string]*strayLines // likewise; nil for a server over HTTP
	told   toldStates

	tellLater func(names []string) // shows in a chat how starts end that go on beside it; see watch
}

const (
	glance = time.Second            // how long the list of servers waits for them
	moment = 100 * time.Millisecond // too short for a user to notice
)

// open reads which servers there are, and makes their host. It starts no server. closeAll ends
// those that were started later.
func (s *servers) open(ctx context.Context) (closeAll func(), err error) {
	if err := s.config.read(ctx); err != nil {
		return nil, err
	}
	if err := s.trace.open(ctx, s.settings.trace, s.config.hasSeveral()); err != nil {
		return nil, err
	}
	s.opened = time.Now()
	s.logs = make(map[string]*serverLog)
	s.strays = make(map[string]*strayLines)
	for i := range s.config.servers {
		s.prepare(&s.config.servers[i])
	}
	s.logins.add()
	s.logins.rejoin = s.rejoin
	s.host = NewHost(s.config.servers, s.clientOptions)
	return s.close, nil
}

// close ends the questions to log in, which may start servers; then the servers; and then closes
// the logins and files that a server uses while it is running.
func (s *servers) close() {
	s.logins.stopAsking()
	_ = s.host.Close()
	s.logins.close()
	for i := range s.config.servers {
		// Close writes the end of the last line, which the writer has kept back.
		if w, ok := s.config.servers[i].Command.Stderr.(io.Closer); ok {
			_ = w.Close()
		}
	}
	for _, log := range s.logs {
		_ = log.file.Close()
	}
	s.trace.close()
}

// prepare sets how a server is started, and where its stderr goes.
func (s *servers) prepare(server *Server) {
	// MCP_START_TIMEOUT is for all servers that the configuration gives no time of their own.
	server.StartTimeout = cmp.Or(server.StartTimeout, s.settings.startTimeout)
	server.OnSlowStart = func(limit time.Duration) {
		s.output.note("server %s: it is still starting, and may be downloading: "+
			"waiting up to %s (MCP_START_TIMEOUT)", OneName(server.Name), limit)
	}
	if server.URL != "" || server.Err != nil {
		return
	}
	server.Command.Excerpt = func(stderr string) string {
		// An excerpt cuts lines, and half a secret would not be recognized later.
		return StderrExcerpt(s.output.screen.Secrets.Mask(stderr))
	}
	server.Start = func(ctx context.Context) (Transport, error) {
		return s.startCommand(ctx, server)
	}
	folder := s.cacheFolder()
	hash := commandHash(&server.Command)
	if folder != "" {
		server.NoProbe = filepath.Join(folder, "handshake-"+hash)
	}
	if s.trace.isOpen() {
		server.Command.Stderr = s.trace.stderrOf(server)
		return
	}
	if folder == "" {
		return
	}
	// The name is escaped so that every file system takes it.
	name := url.QueryEscape(server.Name)
	if s.config.only != "" {
		// The user gave this server no name. By the name of its command alone, all servers that
		// begin with python or npx would share a log.
		name += "-" + hash[:8]
	}
	log, err := openServerLog(filepath.Join(folder, name+".log"))
	if err == nil {
		log.lost = func(err error) {
			s.output.note("server %s: its log is incomplete: %v", OneName(server.Name), err)
		}
		s.logs[server.Name] = log
		// The secrets are taken out here, on the way to the log (see serverLog).
		server.Command.Stderr = s.output.screen.Secrets.Writer(log)
	}
}

// cacheFolder returns the folder for the logs, and for the files that tell which servers need no
// probe. It is "" where there is no home, and for the server that is this program itself, of which
// nothing is kept.
func (s *servers) cacheFolder() string {
	cache, err := os.UserCacheDir()
	if err != nil || CheckHome(cache) != nil || s.config.builtIn {
		return ""
	}
	return filepath.Join(cache, "mcpagent")
}

// commandHash returns a hash of a command, its arguments and its folder. It is a hash because the
// arguments may be secret. The folder is "" where the current folder was removed.
func commandHash(c *Command) string {
	folder, _ := filepath.Abs(c.Dir)
	text := fmt.Appendf(nil, "%q %q %q", c.Path, c.Args, folder)
	return fmt.Sprintf("%.16x", sha256.Sum256(text))
}

// startCommand starts a server as Command does. It also keeps the process for interrupts, and adds
// to an error what to do about it.
func (s *servers) startCommand(ctx context.Context, server *Server) (Transport, error) {
	command := &server.Command
	if command.Dir != "" {
		// Without this, Go says of a folder that does not exist that the command does not.
		if _, err := os.Stat(command.Dir + "/."); err != nil {
			return nil, fmt.Errorf("start server: its \"cwd\": %w", err)
		}
	}
	transport, err := command.Start(ctx)
	if process, ok := transport.(*Stdio); ok {
		s.processes.add(process)
	}
	if err != nil {
		err = fmt.Errorf("%w%s", err, startAdvice(command, err))
	}
	return transport, err
}

// addressLike matches a host with a port, which begins a URL that lacks its scheme.
var addressLike = regexp.MustCompile(`^([\w.-]+|\[[\da-fA-F:]+\]):\d+(/|$)`)

// startAdvice returns what the user can do about a command that could not be run, "" if nothing is
// known. A path that is relative counts from the server's folder, and a name without a folder is
// looked for in PATH alone: so a file that stands beside the configuration may not be found.
func startAdvice(c *Command, err error) string {
	folder, _ := filepath.Abs(c.Dir)
	path := c.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	file, _ := os.Stat(path)
	isRefused := errors.Is(err, fs.ErrPermission)
	switch {
	case isRefused && file != nil && file.IsDir():
		return "; it is a folder, and not a program"
	case isRefused || errors.Is(err, syscall.ENOEXEC):
		return "; it is not executable: if it is a script, make its interpreter the command, " +
			"and the script its first argument"
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return notFoundAdvice(c, folder, file)
	}
	return ""
}

// notFoundAdvice is startAdvice of a command that was not found. file is what stands at its path,
// counted from the folder, nil if nothing does.
func notFoundAdvice(c *Command, folder string, file fs.FileInfo) string {
	isFile := file != nil && file.Mode().IsRegular()
	isName := filepath.Base(c.Path) == c.Path
	switch {
	case addressLike.MatchString(c.Path):
		return "; if it is the URL of a server, it begins with http:// or https://"
	case isFile && isName:
		return "; a file of that name is in " + folder + ", but only PATH is searched: write ./" +
			c.Path
	case isFile:
		return "; the file exists, but the interpreter in its first line (#!) does not"
	case strings.Contains(c.Path, " "):
		return "; put the arguments into \"args\""
	case !isName && !filepath.IsAbs(c.Path):
		return "; a relative path counts from " + folder
	}
	return ""
}

// clientOptions returns the options of the connection to a server.
func (s *servers) clientOptions(server *Server) ClientOptions {
	warn := func(text string) { s.output.note("server %s: %s", OneName(server.Name), text) }
	options := ClientOptions{
		Info:         Implementation{Name: "mcpagent", Version: version},
		Timeout:      s.settings.timeout,
		Protocol:     strings.TrimPrefix(s.settings.protocol, "auto"),
		Warn:         warn,
		Answers:      s.requests.answers(server),
		MaxQuestions: s.settings.maxQuestions,
		Tasks:        true,
		OnTask:       func(ctx context.Context, e TaskEvent) { s.tasks.onTask(ctx, server, e) },
	}
	lines := new(strayLines)
	if server.URL == "" {
		s.strays[server.Name] = lines
	}
	options.Skipped = func(message []byte, _ error) { lines.add(message) }
	if s.trace.isOpen() {
		options.Trace = func(sent bool, text []byte) { s.trace.message(server, sent, text) }
		options.Skipped = func(message []byte, reason error) {
			lines.add(message)
			s.trace.server(server, "!! skipped: "+reason.Error())
		}
	}
	return options
}

// start starts the servers of these names, or all servers if no name is given. It waits for them,
// and shows meanwhile which of them are starting. The error says why none is running.
func (s *servers) start(ctx context.Context, names ...string) error {
	if err := s.config.checkNames(names...); err != nil {
		return err
	}
	err := s.withLogins(ctx, func() error {
		if awaited := starting(s.host.Status(names...)); len(awaited) > 0 {
			view := &View{Screen: s.output.screen, Quiet: s.output.settings.quiet}
			view.Begin("starting " + OneNames(awaited))
			defer view.End()
		}
		s.host.Start(ctx, names...)
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	status := s.host.Status(names...)
	if err := s.noneRunning(status); err != nil {
		return err
	}
	s.tell(status)
	return nil
}

// withLogins calls do, which starts servers, or lists what they have. If some of them need logins,
// the user is asked for one after another, and do is called again. A login that fails does not stop
// the others. In a chat do is called once: the user is asked beside the chat, which goes on without
// those servers.
func (s *servers) withLogins(ctx context.Context, do func() error) error {
	err := do()
	isBetter := false
	for _, state := range s.host.Status() {
		l := s.logins.attended(state.Name)
		needed := neededLogin(state.Err)
		switch {
		case l == nil || needed == nil:
		case s.output.inChat:
			l.begin(needed)
		case l.ask(ctx, needed, "") == nil:
			isBetter = true
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isBetter:
		return do()
	}
	// If a login has failed, the state of its server says so.
	return err
}

// afterLogin calls do, which sends a request to a server. If the request needs a login, the user is
// asked, and do is called again; in a chat, too, the answer waits for that. The user is asked once,
// and once more if the server then demands more scopes. what describes the request that waits.
func (s *servers) afterLogin(
	ctx context.Context,
	server, what string,
	do func() error,
) error {
	l := s.logins.attended(server)
	for asked := 0; ; asked++ {
		err := do()
		needed := neededLogin(err)
		switch {
		case l == nil:
			return s.logins.all[server].explain(err)
		case err == nil:
			l.forgetFailure()
			return nil
		case needed == nil:
			return l.explain(err)
		case asked == 1 && !needed.IsStepUp(), asked == 2:
			return l.refuse(err)
		}
		err = l.ask(ctx, needed, what)
		if err != nil {
			return err
		}
	}
}

// rejoin is logins.rejoin. A server that is running, of which only a call has failed, runs on.
func (s *servers) rejoin(ctx context.Context, server string) error {
	if !s.host.Status(server)[0].Running {
		_ = s.host.Restart(ctx, server)
	}
	_, _ = s.host.Tools(ctx, server)
	status := s.host.Status(server)
	if neededLogin(status[0].Err) != nil {
		return status[0].Err
	}
	if s.output.inChat && ctx.Err() == nil {
		s.tell(status)
	}
	return nil
}

// watch starts the servers beside a chat. It waits a moment for them; after that, the chat goes on,
// and until done it shows of each server that it is ready, or why it is not.
func (s *servers) watch(ctx context.Context) (done func()) {
	ctx, stop := context.WithCancel(ctx)
	soon, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	list := func(ctx context.Context, names ...string) {
		_ = s.withLogins(ctx, func() error {
			_, err := s.host.Tools(ctx, names...)
			return err
		})
	}
	list(soon)
	status := s.host.Status()
	s.tell(status)
	var work sync.WaitGroup
	s.tellLater = func(names []string) {
		for _, name := range names {
			work.Go(func() {
				list(ctx, name)
				if ctx.Err() == nil {
					s.tell(s.host.Status(name))
				}
			})
		}
	}
	// A server may have got ready since the status was read. It is awaited, too, so that the user
	// is told of it.
	s.tellLater(starting(status))
	return func() {
		stop()
		work.Wait()
	}
}
