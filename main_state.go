// main_state.go - the state of servers, and advice about errors, in words for the user.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// isStarting reports whether the first start of a server has not ended: it is starting, or listing
// its tools for the first time, or it was not needed yet.
func isStarting(s HostStatus) bool {
	return s.Err == ErrStarting || s.Err == ErrListing || s.Err == nil && !s.Running
}

// starting returns the names of the servers whose first start has not ended.
func starting(status []HostStatus) []string {
	var names []string
	for _, s := range status {
		if isStarting(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// noneRunning returns the reasons why no server is running. It returns nil if a server is running
// or starting, or if the user is being asked for the login to a server. A server that could not
// list its tools is running: its list is read again with each question.
func (s *servers) noneRunning(status []HostStatus) error {
	var reasons []string
	again, count := "", len(status)
	if s.output.inChat {
		status = s.withoutMistaken(status)
	}
	for _, state := range status {
		if state.Running || isStarting(state) || s.logins.hasAttempt(state.Name) {
			return nil
		}
		reasons = append(reasons, "server "+OneName(state.Name)+": "+s.reason(state))
		if neededLogin(state.Err) == nil && !s.config.isMistaken(state.Name) {
			again = s.triedAgain(len(status))
		}
	}
	if count > 1 {
		return fmt.Errorf("none of the %d servers could be started: %s%s",
			count, strings.Join(reasons, "; "), again)
	}
	// A name that the program made up would puzzle the user.
	userGaveNoName := s.config.only != "" || s.config.builtIn
	if userGaveNoName {
		return errors.New(s.reason(status[0]) + again)
	}
	return errors.New(reasons[0] + again)
}

// triedAgain says in a chat what becomes of so many servers that have failed. Elsewhere it returns
// "".
func (s *servers) triedAgain(count int) string {
	if !s.output.inChat {
		return ""
	}
	subject := "it is"
	if count > 1 {
		subject = "they are"
	}
	return "; " + subject + " tried again with each question, or now with /reconnect"
}

// withoutMistaken leaves out the servers that can never start, as the configuration describes them
// wrongly, unless there are no others. The user of a chat has been told of them at its beginning.
func (s *servers) withoutMistaken(status []HostStatus) []HostStatus {
	others := slices.DeleteFunc(slices.Clone(status), func(state HostStatus) bool {
		return s.config.isMistaken(state.Name)
	})
	if len(others) == 0 {
		return status
	}
	return others
}

// toldStates are the states of servers that the user has been told, so that nothing is told twice.
// Several goroutines tell, for a chat goes on while servers start.
type toldStates struct {
	mu     sync.Mutex        // guards errors; held while a state is shown, for the right order
	errors map[string]string // by the server's name; "" for a server that is ready
}

// tell shows each change of a server's state once: that it is starting, that it is ready, or why it
// is not running. It does not show that a server is ready which was never shown as starting. Nor
// does it show that a server needs a login for which the user is asked: the question does.
func (s *servers) tell(status []HostStatus) {
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	var late []string
	for _, state := range status {
		before, now := s.told.set(state)
		switch {
		case isStarting(state) && before == "":
			late = append(late, state.Name)
		case isStarting(state) || now == before:
			// The user has been told this state.
		case s.output.inChat && s.logins.attended(state.Name) != nil &&
			neededLogin(state.Err) != nil:
			// The question, or the attempt, has told it.
		case state.Err != nil:
			s.output.warn("server %s: %s", OneName(state.Name), s.reason(state))
		case !s.output.settings.quiet:
			tools := Plural(state.Tools, "tool")
			s.output.say("server %s is ready: %s", OneName(state.Name), tools)
		}
	}
	if len(late) > 0 {
		text := "still starting: " + OneNames(late)
		s.output.screen.Show(Look{Style: Faint, Max: maxShown}, text)
	}
}

// set notes a state as told. It returns the errors that were noted before and now. The caller holds
// t.mu.
func (t *toldStates) set(state HostStatus) (before, now string) {
	if t.errors == nil {
		t.errors = make(map[string]string)
	}
	before = t.errors[state.Name]
	if state.Err != nil {
		now = withoutServer(state.Err, state.Name)
	}
	t.errors[state.Name] = now
	return before, now
}

// areTold notes the states of servers that the user has been told otherwise, as by the error of a
// question. Only what then changes is told.
func (s *servers) areTold(status []HostStatus) {
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	for _, state := range status {
		s.told.set(state)
	}
}

// withoutServer returns the text of an error without the server's name, which the Host puts before
// some errors.
func withoutServer(err error, name string) string {
	return strings.TrimPrefix(err.Error(), "server "+name+": ")
}

// describe describes the state of a server in the list of all.
func (s *servers) describe(state HostStatus) string {
	if state.Err == nil {
		return describeRunning(state) + s.strays[state.Name].describe()
	}
	text := s.reason(state)
	if state.Running || isStarting(state) || neededLogin(state.Err) != nil {
		return text
	}
	again := s.triedAgain(1)
	if again != "" && !s.config.isMistaken(state.Name) {
		text += again + " " + OneName(state.Name)
	}
	return "not running: " + text
}

func describeRunning(s HostStatus) string {
	era := "handshake"
	if s.Info.Stateless() {
		era = "stateless"
	}
	server := s.Info.Implementation
	text := fmt.Sprintf("%s, MCP %s (%s), %s, started in %s",
		EscapeUnseen(strings.TrimSpace(server.Name+" "+server.Version)),
		EscapeUnseen(s.Info.ProtocolVersion), era,
		Plural(s.Tools, "tool"), s.Took.Round(time.Millisecond))
	extensions := slices.Sorted(maps.Keys(s.Info.Extensions()))
	if len(extensions) > 0 {
		text += ", extensions: " + OneNames(extensions)
	}
	if s.Restarts > 0 {
		text += ", restarted " + Plural(s.Restarts, "time")
	}
	return text
}

// minLogged is the number of bytes above which a log may tell more than the error. The log begins
// with a line of the program.
const minLogged = 100

// reason returns why a server is not running, without the server's name.
func (s *servers) reason(state HostStatus) string {
	err := state.Err
	// A TimeoutError here is of a list, and MCP_TIMEOUT does not bound the time of a list. So the
	// advice about MCP_TIMEOUT would be wrong.
	isLateList := errors.As(err, new(*TimeoutError))
	if !isLateList {
		err = s.explain(s.logins.all[state.Name].explain(err))
	}
	text := withoutServer(err, state.Name)
	log := s.logs[state.Name]
	// If the server itself answered with an error, the log tells no more about it.
	isAnswer := errors.As(state.Err, new(*Error))
	if log != nil && !isAnswer && log.written.Load() > minLogged {
		text += "; all that it wrote is in " + log.file.Name()
	}
	isServer := func(server Server) bool { return server.Name == state.Name }
	server := s.config.servers[slices.IndexFunc(s.config.servers, isServer)]
	npm := npmLog(state.Err, s.opened, &server.Command)
	if npm != "" {
		text += "; npm's log is " + word(npm)
	}
	name := withheld(state.Err, &server.Command)
	switch {
	case name == "":
	case s.config.only != "":
		text += fmt.Sprintf(`; %s="$%[1]s" before the command of the server passes it on`, name)
	default:
		text += fmt.Sprintf(`; "env": {"%s": "${%[1]s}"} in its configuration passes it on`, name)
	}
	return text
}

// inCapitals matches what may be the name of a variable in an error.
var inCapitals = regexp.MustCompile(`\b[A-Z][A-Z0-9_]{2,}\b`)

// withheld returns the variable of our environment that a server may have missed when it ended: one
// that its last words name, and that it was not given. It returns "" if there is none.
func withheld(err error, command *Command) string {
	var exit *ServerExitError
	if !errors.As(err, &exit) {
		return ""
	}
	given := command.Environment()
	for _, name := range inCapitals.FindAllString(exit.Excerpt, -1) {
		isOurs := os.Getenv(name) != ""
		isIt := func(variable string) bool { return strings.HasPrefix(variable, name+"=") }
		if isOurs && !slices.ContainsFunc(given, isIt) {
			return name
		}
	}
	return ""
}

// explain returns an error with what to do about it. Of several servers, each has its own advice.
func (s *servers) explain(err error) error {
	var several *ServersError
	if errors.As(err, &several) {
		explained := new(ServersError)
		for _, one := range several.Errs {
			explained.Errs = append(explained.Errs, s.explain(one))
		}
		return explained
	}
	err = s.logins.explain(err)
	todo := s.adviceFor(err)
	if todo == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, todo)
}

// adviceFor returns what the user can do about an error of a server or of the model. It returns ""
// if the error itself says enough.
func (s *servers) adviceFor(err error) string {
	advice := certificateAdvice(err)
	if advice != "" {
		return advice
	}
	advice = clientCertificateAdvice(err)
	if advice != "" {
		return advice
	}
	var timeout *TimeoutError
	var refusal *HTTPError
	var model *APIError
	switch {
	case wantsProxyLogin(err):
		return "HTTPS_PROXY and HTTP_PROXY can have a user and a password, " +
			"as http://USER:PASSWORD@HOST:PORT"
	case errors.As(err, new(*StartTimeoutError)):
		return `MCP_START_TIMEOUT, or "startTimeout" in the configuration, sets how long to wait`
	case errors.As(err, &timeout) && !timeout.Total:
		return `the server may still finish the work; MCP_TIMEOUT, or "timeout" in the ` +
			`configuration, sets how long to wait`
	case errors.As(err, new(*AuthorizationError)):
		return ""
	case errors.As(err, &model):
		return adviceForModel(model)
	case asksAsBefore(err):
		return "the server sends requests as before revision 2026-07-28: set " +
			`"protocol": "2025-11-25" in its configuration, or give -protocol 2025-11-25`
	case errors.As(err, &refusal):
		return adviceForURL(refusal)
	}
	return ""
}

// asksAsBefore reports whether a server has failed to ask the client for something. In the
// stateless era it may not send requests, and one that is written for the handshake era finds out
// during a call. The SDK for Python calls what is missing a back-channel. A server that names the
// method alone may also miss a capability of the client, which another revision does not bring.
func asksAsBefore(err error) bool {
	var failure *Error
	return errors.As(err, &failure) && strings.Contains(failure.Message, "back-channel")
}

// wantsProxyLogin reports whether a proxy wants a login: over https the connection to the server is
// refused, and over http the request itself.
func wantsProxyLogin(err error) bool {
	var proxy *ProxyError
	var server *HTTPError
	var model *APIError
	status := 0
	switch {
	case errors.As(err, &proxy):
		status = proxy.Status
	case errors.As(err, &server):
		status = server.Status
	case errors.As(err, &model):
		status = model.Status
	}
	return status == http.StatusProxyAuthRequired
}

// adviceForURL returns what the user can do about a server on the network that could not be reached
// or refused a message. Many a URL is written without its path. Windows has a number of its own for
// an address where nothing listens, WSAECONNREFUSED.
func adviceForURL(refusal *HTTPError) string {
	isRefused := errors.Is(refusal, syscall.ECONNREFUSED) ||
		errors.Is(refusal, syscall.Errno(10061))
	switch {
	case isRefused:
		return "nothing listens there: start the server, or check its URL"
	case errors.Is(refusal, http.ErrSchemeMismatch):
		return "it speaks plain http: begin its URL with http://"
	case refusal.Status == http.StatusUnauthorized:
		return `MCP_HEADERS, or "headers" in the configuration, sets headers`
	case refusal.Status == http.StatusNotFound:
		return "check the path of the URL: many servers use /mcp"
	}
	return ""
}

// adviceForModel knows the errors of Mistral's API, and those that servers like it send with the
// same status.
func adviceForModel(err *APIError) string {
	if err.Status == http.StatusUnauthorized {
		return "check the API key"
	}
	isMissing := err.Status == http.StatusNotFound && strings.Contains(err.Message, "model")
	if err.Code == "1500" || isMissing {
		return "check the model's name"
	}
	return ""
}
