// main_configuration.go - which servers a run has.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// configuration says which servers a run has: the one of MCP_SERVER, or those of a file, or this
// program itself, which searches its own documentation. It is read once. Then servers.open and the
// logins complete its servers. After that nothing changes it, and the host's goroutines read it.
type configuration struct {
	settings *serverSettings
	output   *output
	terminal *Terminal // asks whether a folder is trusted, and for the inputs of servers

	file     string // of servers; "" if there is none
	text     []byte // of the file, once it has been read: a pipe can be read once
	isLoaded bool   // the two above are known
	only     string // the command line, or the URL, of the only server; "" for others
	servers  []Server
	oauth    map[string]*OAuthConfig // by the server's name
	tls      map[string]*TLSFiles    // the same
	disabled []string                // names of servers
	others   []Setting               // what else the file sets
	builtIn  bool                    // the only server is this program
}

// read reads which servers to use.
func (c *configuration) read(ctx context.Context) error {
	if c.settings.only != "" {
		return c.readOnly(ctx, c.settings.only)
	}
	err := c.load(ctx)
	if err != nil {
		return err
	}
	if c.file != "" {
		return c.readFile(ctx)
	}
	self, err := os.Executable()
	c.builtIn = true
	c.servers = []Server{{Name: "library", Command: Command{Path: self, Args: []string{"serve"}}}}
	return err
}

// readFile reads the file of servers that load has found. It parses the file twice. The first time
// it learns which servers there are, which the user may have to allow, and which inputs they need.
// The second time it has the values of the inputs.
func (c *configuration) readFile(ctx context.Context) error {
	secrets := c.output.screen.Secrets
	file, text := c.file, c.text
	values := newVariables()
	// What is secret is not known before the file is trusted. Otherwise a file could hide a command
	// as a secret.
	config, err := c.parse(file, text, values)
	if err != nil {
		return fmt.Errorf("%s: %w", file, withConversion(err, file, text))
	}
	folder := ""
	if c.isOfStranger(file) {
		folder = "."
	}
	approveSelf(config.Servers, folder)
	if c.isOfFolder(file) {
		trust := folderTrust{c.settings, c.output, c.terminal}
		if err := trust.check(ctx, file, text, config, values.lookup); err != nil {
			return err
		}
		// Otherwise the file is in the home, or the user has been asked about it.
		if c.output.inChat || c.settings.trust {
			names := OneNames(ServerNames(config.Servers))
			c.output.note("the servers of %s: %s", file, names)
		}
	}
	if c.terminal.Interactive() {
		if err := c.askInputs(ctx, config.Inputs, values); err != nil {
			return err
		}
	}
	config, _ = ParseConfig(text, values.lookup, c.fileReader(file), secrets)
	approveSelf(config.Servers, folder)
	for _, warning := range config.Warnings {
		c.output.note("%s: %s", file, warning)
	}
	c.servers, c.oauth, c.disabled = config.Servers, config.OAuth, config.Disabled
	c.tls, c.others = config.TLS, config.Settings
	if len(c.servers) == 0 && len(c.disabled) > 0 {
		return fmt.Errorf("%s has no server that is enabled", file)
	}
	return nil
}

// The bounds of a file that is found in this folder. A stranger may have written it, and it is read
// before the user is asked about it.
const (
	maxFolderFile    = 1 << 20 // bytes
	maxFolderServers = 1000
)

// isOfFolder reports whether a file was found in this folder, and not named by the user.
func (c *configuration) isOfFolder(file string) bool {
	return c.settings.config == "" && filepath.Dir(file) == "."
}

// isOfStranger reports whether a stranger may have written a file of servers.
func (c *configuration) isOfStranger(file string) bool { return c.isOfFolder(file) && !isHome() }

// fileReader returns the func that reads what a file of servers names.
func (c *configuration) fileReader(file string) func(path string, limit int64) ([]byte, error) {
	if c.isOfStranger(file) {
		return ReadOfStranger
	}
	return ReadRegular
}

// load finds and reads the file of servers: the one that the user has named, or else the first that
// is found and has servers. mcphost writes a file without servers into each home, and a user who
// never filled it in does not miss it.
func (c *configuration) load(ctx context.Context) (err error) {
	if c.isLoaded {
		return nil
	}
	if c.settings.config != "" {
		c.file = c.settings.config
		c.text, err = ReadNamed(ctx, c.file)
		if err != nil {
			return fmt.Errorf("%s: %w", c.settings.configBy, err)
		}
		c.isLoaded = true
		return nil
	}
	for _, file := range foundConfigs() {
		text, err := c.readFound(ctx, file)
		if err != nil {
			return err
		}
		if !HasNoServers(text) {
			c.file, c.text = file, text
			break
		}
		if !c.output.settings.json {
			c.output.note("%s has no servers, and is passed over", file)
		}
	}
	c.isLoaded = true
	return nil
}

// readFound reads a file that the user has not named.
func (c *configuration) readFound(ctx context.Context, file string) ([]byte, error) {
	if !c.isOfFolder(file) {
		return ReadNamed(ctx, file)
	}
	text, err := ReadRegular(file, maxFolderFile)
	if err != nil && !errors.As(err, new(*fs.PathError)) {
		// It can be read, and was refused.
		err = fmt.Errorf("%w: if it is yours, name it with -config", err)
	}
	return text, err
}

// parse parses the text of a file of servers, of which nothing is known to be secret.
func (c *configuration) parse(file string, text []byte, values variables) (*Config, error) {
	config, err := ParseConfig(text, values.lookup, c.fileReader(file), new(Secrets))
	if err == nil && c.isOfFolder(file) && len(config.Servers) > maxFolderServers {
		return nil, fmt.Errorf("it has more than %d servers: if it is yours, name it with -config",
			maxFolderServers)
	}
	return config, err
}

// withConversion adds to the error of a file of YAML, which mcphost reads, a command that makes
// JSON of it. The JSON goes to where it is found next time, if the file was found, but not over a
// file that is there.
func withConversion(err error, file string, text []byte) error {
	var format *ConfigFormatError
	if !errors.As(err, &format) || format.Format != "YAML" {
		return err
	}
	if bytes.HasPrefix(text, []byte("#!")) {
		return errors.New("it is a script of mcphost, which " + noScript)
	}
	base := strings.TrimSuffix(file, filepath.Ext(file))
	target, then := base+".json", ""
	isThere := func() bool {
		_, err := os.Lstat(target)
		return err == nil
	}
	for n := 2; isThere(); n++ {
		target = fmt.Sprintf("%s-%d.json", base, n)
		then = "; then name it: -config " + word(target)
	}
	// Where the command fails, the shell has made the target already: an empty one would be found
	// next time.
	return fmt.Errorf("it is YAML, and not JSON; convert it with: "+
		"npx -y js-yaml %s > %s || rm %[2]s%s", word(file), word(target), then)
}

// variables are the values of the variables that a file of servers may name, beside those of the
// environment. VS Code calls them workspaceFolder, userHome and input:ID.
type variables map[string]string

func newVariables() variables {
	folder, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	return variables{"workspaceFolder": folder, "userHome": home}
}

func (v variables) lookup(name string) (value string, ok bool) {
	if value, ok := v[name]; ok {
		return value, true
	}
	return os.LookupEnv(name)
}

// askInputs asks the user once for each input that servers need. A value that is not chosen from a
// list may be secret. If the user ends the questions, a server whose input is missing reports that
// when it is started.
func (c *configuration) askInputs(ctx context.Context, inputs []Input, values variables) error {
	for _, in := range inputs {
		if _, isAnswered := values["input:"+in.ID]; isAnswered {
			continue
		}
		f := &Field{Name: in.ID, Title: in.Description, Type: "string", Default: in.Default}
		for _, option := range in.Options {
			f.Options = append(f.Options, Option{Value: option})
		}
		value, err := c.terminal.Input(ctx, f, in.Password)
		if err != nil {
			return context.Cause(ctx)
		}
		text, _ := value.(string)
		values["input:"+in.ID] = text
		if in.Password {
			c.output.screen.Secrets.AddHeader("password", text)
		} else if in.Options == nil {
			c.output.screen.Secrets.AddHeader(in.ID, text)
		}
	}
	return nil
}

// foundConfigs returns the configuration files that there are of this folder and of the user, the
// first of which is used. It also returns a file that cannot be read: the error of reading it tells
// the user why.
func foundConfigs() []string {
	home, _ := os.UserHomeDir()
	files := []string{".mcp.json"}
	names := []string{".mcp.json", ".mcphost.json",
		".mcphost.yml", ".mcphost.yaml", ".mcp.yml", ".mcp.yaml"}
	if isHome() {
		// The first of the names is the file of this folder.
		names = names[1:]
	}
	for _, name := range names {
		files = append(files, filepath.Join(home, name))
	}
	return slices.DeleteFunc(files, func(file string) bool {
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// uriScheme matches the beginning of a URI: RFC 3986, 3.1.
var uriScheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)

// readOnly makes the only server of the run from its URL or its command line.
func (c *configuration) readOnly(ctx context.Context, text string) error {
	c.only = text
	secrets := c.output.screen.Secrets
	address := strings.TrimSpace(text)
	scheme := uriScheme.FindString(address)
	if scheme != "" && strings.HasPrefix(address, scheme+"//") {
		u, err := ParseServerURL(address, secrets)
		if err != nil {
			return usageError("MCP_SERVER: %w", err)
		}
		c.servers = []Server{{Name: u.Hostname(), URL: address, Header: c.settings.headers}}
		// The login to a server of the configuration is good for its URL, too.
		known := c.loginsAt(ctx, address)
		if len(known) == 1 {
			c.oauth = map[string]*OAuthConfig{u.Hostname(): known[0].oauth}
			c.tls = map[string]*TLSFiles{u.Hostname(): known[0].tls}
		}
		return nil
	}
	command, err := ParseCommand(text)
	if err != nil {
		return usageError("MCP_SERVER: %w", err)
	}
	for _, variable := range command.Env {
		name, value, _ := strings.Cut(variable, "=")
		secrets.AddVariable(name, value)
	}
	secrets.AddArguments(command.Args)
	// A command line that is quoted as a whole is a mistake, which the start of the server
	// explains.
	name, _, _ := strings.Cut(filepath.Base(command.Path), " ")
	c.servers = []Server{{Name: name, Command: command}}
	approveSelf(c.servers, "")
	return nil
}

// checkNames returns an error for the first of these names that no server has, and also if there is
// no server at all.
func (c *configuration) checkNames(names ...string) error {
	if len(c.servers) == 0 {
		return fmt.Errorf("%s has no servers", c.file)
	}
	known := ServerNames(c.servers)
	for _, name := range names {
		if slices.Contains(c.disabled, name) {
			return usageError("the server %q is disabled in the configuration", name)
		}
		if !slices.Contains(known, name) {
			return usageError("there is no server %q; the servers are: %s",
				name, OneNames(known))
		}
	}
	return nil
}

// named returns the server of a name, nil if there is none.
func (c *configuration) named(name string) *Server {
	i := slices.IndexFunc(c.servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.servers[i]
}

// isMistaken reports whether the server of a name is described wrongly, and so can never start.
func (c *configuration) isMistaken(name string) bool {
	return c.has(name, func(s *Server) bool { return s.Err != nil })
}

// hasSeveral reports whether a server needs a name for the user to know it from others.
func (c *configuration) hasSeveral() bool { return len(c.servers) > 1 }

// title names a server in a sentence.
func (c *configuration) title(s *Server) string {
	if c.hasSeveral() {
		return "the server " + OneName(s.Name)
	}
	return "the server"
}

// split splits a name of the form SERVER:NAME. The server is "" if the name does not begin with a
// server. If several servers fit, as "a" and "a:b" do, split takes the longest name.
func (c *configuration) split(name string) (server, rest string) {
	rest = name
	for _, s := range c.servers {
		after, ok := strings.CutPrefix(name, s.Name+":")
		if ok && len(after) < len(rest) {
			server, rest = s.Name, after
		}
	}
	return server, rest
}

// has reports whether any server of this name fits.
func (c *configuration) has(name string, fits func(s *Server) bool) bool {
	return slices.ContainsFunc(c.servers, func(s Server) bool { return s.Name == name && fits(&s) })
}
