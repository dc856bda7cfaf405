// This project's client, copied as docs/copy.md describes.
package main

import (
	"context"
	"encoding/json"

	"speed/ours/mcpagent"
	"speed/work"
)

type client struct{ *mcpagent.Client }

func (c client) Call(ctx context.Context, tool string) (string, error) {
	result, err := c.CallTool(ctx, tool, json.RawMessage(work.Arguments), nil)
	if err != nil {
		return "", err
	}
	return result.Content[0].Text, nil
}

func (c client) List(ctx context.Context) (int, error) {
	tools, err := c.ListTools(ctx)
	return len(tools), err
}

func main() {
	work.Main(func(ctx context.Context, server []string) (work.Client, error) {
		command := mcpagent.Command{Path: server[0], Args: server[1:]}
		c, err := mcpagent.Connect(ctx, command.Start, nil)
		return client{c}, err
	})
}
