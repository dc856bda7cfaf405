// The official Go SDK.
package main

import (
	"context"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"speed/work"
)

type client struct {
	*mcp.ClientSession
	arguments map[string]any
}

func (c client) Call(ctx context.Context, tool string) (string, error) {
	result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: c.arguments})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

func (c client) List(ctx context.Context) (int, error) {
	result, err := c.ListTools(ctx, nil)
	if err != nil {
		return 0, err
	}
	return len(result.Tools), nil
}

func main() {
	work.Main(func(ctx context.Context, server []string) (work.Client, error) {
		transport := &mcp.CommandTransport{Command: exec.Command(server[0], server[1:]...)}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "speed", Version: "1"}, nil).Connect(ctx, transport, nil)
		return client{session, work.ArgumentsMap()}, err
	})
}
