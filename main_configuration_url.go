// main_configuration_url.go - what the configuration says about a server that is named by its URL.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// readURL makes the server of a command that is given a URL. If a server of the configuration has
// that URL, the configuration is read, as for a command that is given the server's name. Any other
// URL needs no configuration, nor one without mistakes.
func (c *configuration) readURL(ctx context.Context, address string) error {
	if c.settings.only != "" {
		return c.readOnly(address)
	}
	file, _, config, err := c.parse(new(Secrets))
	if err != nil {
		c.output.note("this configuration is not used: %s", err)
	}
	if len(serversAt(config, address)) == 0 {
		return c.readOnly(address)
	}
	return c.readFile(ctx, file)
}

// parse parses the configuration file, without asking the user for anything. The results are zero
// if there is no file.
func (c *configuration) parse(secrets *Secrets) (
	file string, text []byte, config *Config, err error,
) {
	file = c.settings.config
	if file == "" {
		file = defaultConfig()
	}
	if file == "" {
		return "", nil, nil, nil
	}
	text, err = os.ReadFile(file)
	if err == nil {
		config, err = ParseConfig(text, newVariables().lookup, secrets)
	}
	if err != nil {
		return "", nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return file, text, config, nil
}

// serversAt returns the servers of a configuration that have a URL.
func serversAt(config *Config, address string) (found []*Server) {
	if config == nil {
		return nil
	}
	for i := range config.Servers {
		s := &config.Servers[i]
		if s.URL != "" && isSameURL(s.URL, address) {
			found = append(found, s)
		}
	}
	return found
}

// oauthAt returns what the configuration says about the login at a URL, for each of its servers
// that have this URL. It asks the user for nothing: the configuration of a folder is used only if
// the user has allowed it before, and a server that lacks an input is left out.
func (c *configuration) oauthAt(address string) (found []*OAuthConfig) {
	// The secrets of a configuration that is not used are not looked for in any text.
	file, text, config, err := c.parse(new(Secrets))
	if err != nil || len(serversAt(config, address)) == 0 {
		return nil
	}
	if c.settings.config == "" && filepath.Dir(file) == "." {
		folder := folderTrust{c.settings, c.output, c.terminal}
		memory, err := folder.unknown(file, text, config)
		if err != nil || memory != nil {
			return nil
		}
	}
	config, _ = ParseConfig(text, newVariables().lookup, c.output.screen.Secrets)
	for _, s := range serversAt(config, address) {
		o := config.OAuth[s.Name]
		if s.Err == nil && o != nil {
			found = append(found, o)
		}
	}
	return found
}
