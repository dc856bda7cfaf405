// main_configuration_url.go - what the configuration says about a server that is named by its URL.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
)

// readURL makes the server of a command that is given a URL. If a server of the configuration has
// that URL, the configuration is read, as for a command that is given the server's name. Any other
// URL needs no configuration, nor one without mistakes.
func (c *configuration) readURL(ctx context.Context, address string) error {
	if c.settings.only != "" {
		return c.readOnly(ctx, address)
	}
	config, err := c.look(ctx)
	if err != nil {
		c.output.note("this configuration is not used: %s", err)
	}
	if len(serversAt(config, address)) == 0 {
		return c.readOnly(ctx, address)
	}
	return c.readFile(ctx)
}

// look reads the configuration file, without asking the user for anything. What it calls a secret
// is not looked for in any text. The configuration is nil if there is no file.
func (c *configuration) look(ctx context.Context) (*Config, error) {
	err := c.load(ctx)
	if err != nil || c.file == "" {
		return nil, err
	}
	config, err := c.parse(c.file, c.text, newVariables())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	return config, nil
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

// loginConfig is what a configuration says about the login to a server: nil where it says nothing.
type loginConfig struct {
	oauth *OAuthConfig
	tls   *TLSFiles
}

// loginsAt returns what the configuration says about the login at a URL, for each of its servers
// that have this URL. It asks the user for nothing: the configuration of a folder is used only if
// the user has allowed it before, and a server that lacks an input is left out.
func (c *configuration) loginsAt(ctx context.Context, address string) (found []loginConfig) {
	config, err := c.look(ctx)
	if err != nil || len(serversAt(config, address)) == 0 {
		return nil
	}
	file, text := c.file, c.text
	if c.isOfFolder(file) {
		folder := folderTrust{c.settings, c.output, c.terminal}
		memory, err := folder.unknown(file, text, config)
		if err != nil || memory != nil {
			return nil
		}
	}
	lookup, secrets := newVariables().lookup, c.output.screen.Secrets
	config, _ = ParseConfig(text, lookup, c.fileReader(file), secrets)
	for _, s := range serversAt(config, address) {
		l := loginConfig{config.OAuth[s.Name], config.TLS[s.Name]}
		if s.Err == nil && l != (loginConfig{}) {
			found = append(found, l)
		}
	}
	return found
}
