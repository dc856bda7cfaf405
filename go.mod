module mcpagent

go 1.25

require gotest.tools/v3 v3.5.2

require github.com/google/go-cmp v0.5.9 // indirect
