// A server that is never the bottleneck: it looks for a request's id, method and tool, parses nothing, and writes once
// for all the requests of a read. Its argument is how many tools it lists.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
)

func main() {
	log.SetFlags(0)
	count := 0
	if len(os.Args) == 2 {
		count, _ = strconv.Atoi(os.Args[1])
	}
	list := tools(count)
	texts := make(map[string][]byte) // results of tools/call, by the name of the tool
	in, out := bufio.NewReaderSize(os.Stdin, 64<<10), bufio.NewWriterSize(os.Stdout, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		id := bytes.TrimRight(between(line, `"id":`, ","), "}\n")
		if id != nil {
			out.WriteString(`{"jsonrpc":"2.0","id":`)
			out.Write(id)
			switch method := between(line, `"method":"`, `"`); string(method) {
			case "tools/call":
				tool := between(line, `"name":"`, `"`)
				text, made := texts[string(tool)]
				if !made {
					text = result(string(tool))
					texts[string(tool)] = text
				}
				out.Write(text)
			case "tools/list":
				out.Write(list)
			case "initialize":
				fmt.Fprintf(out, `,"result":{"protocolVersion":"%s","capabilities":{"tools":{}},`+
					`"serverInfo":{"name":"speed","version":"1"}}}`+"\n", between(line, `"protocolVersion":"`, `"`))
			default:
				out.WriteString(`,"error":{"code":-32601,"message":"method not found"}}` + "\n")
			}
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// between returns what stands after begin, and before end if that follows. It is nil if there is no begin.
func between(line []byte, begin, end string) []byte {
	_, rest, _ := bytes.Cut(line, []byte(begin))
	found, _, _ := bytes.Cut(rest, []byte(end))
	return found
}

// result returns the rest of an answer whose text is as long as the tool's name says: prose, in lines of 80 bytes.
func result(tool string) []byte {
	size, err := strconv.Atoi(strings.TrimPrefix(tool, "text-"))
	if err != nil {
		log.Fatal(err)
	}
	const prose = "A line of a text as books have it, with few quotes and a newline at its end....\n"
	text, _ := json.Marshal(strings.Repeat(prose, size/len(prose)+1)[:size])
	return []byte(`,"result":{"content":[{"type":"text","text":` + string(text) + "}]}}\n")
}

// tools returns the rest of the answer to tools/list, with tools of 500 bytes.
func tools(count int) []byte {
	const tool = `{"name":"search_%05d","description":"Searches collection number %[1]d, and returns what it finds.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"query":{"type":"string","description":"What to look for, in plain words","minLength":1,"maxLength":500},` +
		`"limit":{"type":"integer","description":"How many passages to return","minimum":1,"maximum":50,"default":10},` +
		`"source":{"type":"string","description":"Where to look","enum":["books","letters"]}},` +
		`"required":["query"]}}`
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf(tool, i))
	}
	return []byte(`,"result":{"tools":[` + strings.Join(all, ",") + "]}}\n")
}
