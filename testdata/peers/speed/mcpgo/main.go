// The client of mcp-go.
package main

import (
	"context"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"speed/work"
)

type client struct {
	*mcpgo.Client
	arguments map[string]any
}

func (c client) Call(ctx context.Context, tool string) (string, error) {
	result, err := c.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{Name: tool, Arguments: c.arguments}})
	if err != nil {
		return "", err
	}
	return result.Content[0].(mcp.TextContent).Text, nil
}

func (c client) List(ctx context.Context) (int, error) {
	result, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return 0, err
	}
	return len(result.Tools), nil
}

func main() {
	work.Main(func(ctx context.Context, server []string) (work.Client, error) {
		c, err := mcpgo.NewStdioMCPClient(server[0], nil, server[1:]...)
		if err != nil {
			return nil, err
		}
		var hello mcp.InitializeRequest
		hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
		hello.Params.ClientInfo = mcp.Implementation{Name: "speed", Version: "1"}
		_, err = c.Initialize(ctx, hello)
		return client{c, work.ArgumentsMap()}, err
	})
}
