package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// htTool is a tool whose schema has these properties.
func htTool(name, properties string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{%s}}}`, name, properties)
}

// htListed is the answer to tools/list.
func htListed(id string, tools ...string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[` + strings.Join(tools, ",") + `]}}`
}

// htParams is a server whose lists are answered by list; it answers calls with {}.
func htParams(t *testing.T, list htScript) (*htPeer, *htServer, *[]string) {
	s, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if m.Method == "tools/list" {
			list(w, r, m)
			return
		}
		htAnswer(w, 200, htResult(string(m.ID)))
	})
	var warnings []string
	p := htOpen(t, &ParamHeaders{HTTP: &HTTP{URL: "http://memory/", Client: client}, Warn: func(text string) { warnings = append(warnings, text) }})
	return p, s, &warnings
}

// htTools is htParams with one list, which was read.
func htTools(t *testing.T, tools ...string) (*htPeer, *htServer) {
	p, s, _ := htParams(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
		htAnswer(w, 200, htListed(string(m.ID), tools...))
	})
	p.say(htModern(1, "tools/list", ""))
	p.expect(htListed("1", tools...))
	return p, s
}

// htCall calls the tool t, and returns the Mcp-Param headers that were sent with it.
func htCall(t *testing.T, p *htPeer, s *htServer, tool, arguments string) map[string]string {
	t.Helper()
	message := htModern(2, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s,`, tool, arguments))
	p.say(message)
	p.expect(htResult("2"))
	got := s.last(t, "POST")
	assert.Equal(t, got.Body, message)
	assert.Equal(t, got.Header.Get("Mcp-Name"), tool)
	params := map[string]string{}
	for name, values := range got.Header {
		if rest, ok := strings.CutPrefix(name, "Mcp-Param-"); ok {
			params[rest] = strings.Join(values, " | ")
		}
	}
	return params
}

// TestParamHeaders: each value as the table of the specification has it.
func TestParamHeaders(t *testing.T) {
	checkLeaks(t)
	p, s := htTools(t,
		htTool("t", `"s":{"type":"string","x-mcp-header":"Text"},"i":{"type":"integer","x-mcp-header":"Number"},"b":{"type":"boolean","x-mcp-header":"Flag"},"not":{"type":"string"},`+
			`"null":{"type":["null","string"],"x-mcp-header":"OrNull"},"m":{"type":"string","x-mcp-header":"Method"},`+
			`"deep":{"type":"object","properties":{"properties":{"type":"object","properties":{"x-mcp-header":{"type":"string","x-mcp-header":"Deep"}}}}}`),
		htTool("deep", `"x":{"properties":{"y":{"properties":{"z":{"properties":{`+
			`"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"B"},"c":{"type":"string","x-mcp-header":"C"}}}}}}}`),
		htTool("other", `"s":{"type":"string","x-mcp-header":"Other"}`),
		htTool("none", `"s":{"type":"string"}`))
	for _, c := range []struct {
		arguments string
		want      map[string]string
	}{
		{`{"s":"us-west1"}`, map[string]string{"Text": "us-west1"}},
		{`{"s":"Hello, 世界"}`, map[string]string{"Text": "=?base64?SGVsbG8sIOS4lueVjA==?="}},
		{`{"s":" padded "}`, map[string]string{"Text": "=?base64?IHBhZGRlZCA=?="}},
		{`{"s":"line1\nline2"}`, map[string]string{"Text": "=?base64?bGluZTEKbGluZTI=?="}},
		{`{"s":"=?base64?literal?="}`, map[string]string{"Text": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}},
		{`{"s":""}`, map[string]string{"Text": ""}},
		{`{"s":"a  b"}`, map[string]string{"Text": "a  b"}},
		{`{"s":"a\tb"}`, map[string]string{"Text": "=?base64?YQli?="}},
		{`{"s":"\r\nX-Evil: 1"}`, map[string]string{"Text": "=?base64?DQpYLUV2aWw6IDE=?="}},
		{`{"s":"\u0000\u007f"}`, map[string]string{"Text": "=?base64?AH8=?="}},
		{`{"s":"\u0041\ud83d\ude00"}`, map[string]string{"Text": "=?base64?QfCfmIA=?="}},
		{`{"s":"=?base64?"}`, map[string]string{"Text": "=?base64?"}},
		{`{"s":"=?BASE64?eA==?="}`, map[string]string{"Text": "=?BASE64?eA==?="}},
		{`{"s":"true","not":"x"}`, map[string]string{"Text": "true"}},
		{`{"s":null}`, map[string]string{}},
		{`{}`, map[string]string{}},
		{`null`, map[string]string{}},
		{`[]`, map[string]string{}},
		{`{"S":"x","s ":"y"}`, map[string]string{}},
		{`{"s":["x"],"i":{},"deep":"x"}`, map[string]string{}},
		{`{"i":42}`, map[string]string{"Number": "42"}},
		{`{"i":-7}`, map[string]string{"Number": "-7"}},
		{`{"i":0}`, map[string]string{"Number": "0"}},
		{`{"i":-0}`, map[string]string{"Number": "0"}},
		{`{"i":42.0}`, map[string]string{"Number": "42"}},
		{`{"i":1e3}`, map[string]string{"Number": "1000"}},
		{`{"i":1500E-2}`, map[string]string{"Number": "15"}},
		{`{"i":9007199254740991}`, map[string]string{"Number": "9007199254740991"}},
		{`{"i":-9007199254740991}`, map[string]string{"Number": "-9007199254740991"}},
		{`{"i":1.5}`, map[string]string{}},
		{`{"b":true}`, map[string]string{"Flag": "true"}},
		{`{"b":false}`, map[string]string{"Flag": "false"}},
		{`{"null":null}`, map[string]string{}},
		{`{"null":"x"}`, map[string]string{"Ornull": "x"}},
		{`{"m":"x"}`, map[string]string{"Method": "x"}},
		{`{"deep":{"properties":{"x-mcp-header":"x"}}}`, map[string]string{"Deep": "x"}},
		{`{"deep":{"properties":null}}`, map[string]string{}},
		{`{"deep":{"x-mcp-header":"x"}}`, map[string]string{}},
		{`{"s":"a","i":1,"b":true,"deep":{"properties":{"x-mcp-header":"d"}}}`, map[string]string{"Text": "a", "Number": "1", "Flag": "true", "Deep": "d"}},
	} {
		assert.Check(t, is.DeepEqual(htCall(t, p, s, "t", c.arguments), c.want), c.arguments)
		assert.Equal(t, s.last(t, "POST").Header.Get("Mcp-Method"), "tools/call")
	}
	assert.DeepEqual(t, htCall(t, p, s, "deep", `{"x":{"y":{"z":{"a":"1","b":"2","c":"3"}}}}`), map[string]string{"A": "1", "B": "2", "C": "3"})
	assert.DeepEqual(t, htCall(t, p, s, "other", `{"s":"x"}`), map[string]string{"Other": "x"})
	assert.DeepEqual(t, htCall(t, p, s, "none", `{"s":"x"}`), map[string]string{})
	assert.DeepEqual(t, htCall(t, p, s, "unheard of", `{"s":"x"}`), map[string]string{})

	sent := len(s.all())
	for _, number := range []string{"9007199254740992", "-9007199254740992", "9007199254740993", "1e16", "1e400", "-1e400"} {
		err := p.write(htModern(2, "tools/call", `"name":"t","arguments":{"i":`+number+`},`))
		assert.ErrorContains(t, err, "i: "+number+" is beyond 2^53-1")
	}
	assert.Equal(t, len(s.all()), sent)
	p.say(htModern(2, "tools/call", `"name":"t",`)) // without arguments
	p.say(htModern(2, "prompts/get", `"name":"t","arguments":{"s":"x"},`))
	assert.Assert(t, !slices.ContainsFunc(s.all(), func(r htSeen) bool {
		return r.Header["Mcp-Param-Text"] != nil && strings.Contains(r.Body, "prompts/get")
	}))
	p.say(htRequest(2, "tools/call", `"name":"t","arguments":{"s":"x"}`)) // of the handshake era
	assert.Equal(t, len(s.last(t, "POST").Header["Mcp-Param-Text"]), 0)
	p.expect(htResult("2"), htResult("2"), htResult("2"))
}

// TestParamHeadersInvalid: a tool that asks for what is not allowed is taken out of the list, with a warning; nothing else is touched.
func TestParamHeadersInvalid(t *testing.T) {
	at := func(name string) string { return `{"type":"string","x-mcp-header":` + name + `}` }
	for properties, want := range map[string]string{
		// The name.
		`"a":` + at(`""`):                                             `x-mcp-header "" is no name`,
		`"a":` + at(`null`):                                           `is no name`,
		`"a":` + at(`5`):                                              `x-mcp-header "5" is no name`,
		`"a":` + at(`{"type":"string"}`):                              `is no name`,
		`"a":` + at(`"My Region"`):                                    `"My Region" is no name`,
		`"a":` + at(`"Region:Primary"`):                               `"Region:Primary" is no name`,
		`"a":` + at(`"Région"`):                                       `"Région" is no name`,
		`"a":` + at(`"a\r\nb"`):                                       `"a\r\nb" is no name`,
		`"a":` + at(`"\u007f"`):                                       `is no name`,
		`"a":` + at(`"X"`) + `,"b":` + at(`"X"`):                      `is there twice`,
		`"a":` + at(`"Xy"`) + `,"b":` + at(`"xY"`):                    `is there twice`,
		`"a":{"properties":{"b":` + at(`"X"`) + `}},"b":` + at(`"X"`): `is there twice`,
		// The type.
		`"a":{"x-mcp-header":"X"}`:                            `is no string, integer or boolean`,
		`"a":{"type":"number","x-mcp-header":"X"}`:            `is no string, integer or boolean`,
		`"a":{"type":"object","x-mcp-header":"X"}`:            `is no string, integer or boolean`,
		`"a":{"type":"array","x-mcp-header":"X"}`:             `is no string, integer or boolean`,
		`"a":{"type":"null","x-mcp-header":"X"}`:              `is no string, integer or boolean`,
		`"a":{"type":["null"],"x-mcp-header":"X"}`:            `is no string, integer or boolean`,
		`"a":{"type":["string","number"],"x-mcp-header":"X"}`: `is no string, integer or boolean`,
		`"a":{"type":[],"x-mcp-header":"X"}`:                  `is no string, integer or boolean`,
		`"a":{"type":5,"x-mcp-header":"X"}`:                   `is no string, integer or boolean`,
		`"a":{"$ref":"#/$defs/x","x-mcp-header":"X"}`:         `is no string, integer or boolean`,
		// The place.
		`"a":{"items":` + at(`"X"`) + `}`:                                           `not only properties lead`,
		`"a":{"items":{"properties":{"b":` + at(`"X"`) + `}}}`:                      `not only properties lead`,
		`"a":{"prefixItems":[{},` + at(`"X"`) + `]}`:                                `not only properties lead`,
		`"a":{"contains":` + at(`"X"`) + `}`:                                        `not only properties lead`,
		`"a":{"oneOf":[{"type":"null"},` + at(`"X"`) + `]}`:                         `not only properties lead`,
		`"a":{"anyOf":[` + at(`"X"`) + `]}`:                                         `not only properties lead`,
		`"a":{"allOf":[{"properties":{"b":` + at(`"X"`) + `}}]}`:                    `not only properties lead`,
		`"a":{"not":` + at(`"X"`) + `}`:                                             `not only properties lead`,
		`"a":{"if":` + at(`"X"`) + `}`:                                              `not only properties lead`,
		`"a":{"then":{"properties":{"b":` + at(`"X"`) + `}}}`:                       `not only properties lead`,
		`"a":{"else":` + at(`"X"`) + `}`:                                            `not only properties lead`,
		`"a":{"additionalProperties":` + at(`"X"`) + `}`:                            `not only properties lead`,
		`"a":{"patternProperties":{"^x":` + at(`"X"`) + `}}`:                        `not only properties lead`,
		`"a":{"propertyNames":` + at(`"X"`) + `}`:                                   `not only properties lead`,
		`"a":{"dependentSchemas":{"b":` + at(`"X"`) + `}}`:                          `not only properties lead`,
		`"a":{"$defs":{"b":` + at(`"X"`) + `}}`:                                     `not only properties lead`,
		`"a":{"definitions":{"properties":{"properties":{"b":` + at(`"X"`) + `}}}}`: `not only properties lead`,
		`"a":{"unevaluatedItems":` + at(`"X"`) + `}`:                                `not only properties lead`,
		`}},"x":{"y":{"z":{}`:                                                       ``, // no schema at all, but allowed
		`"properties":{"items":` + at(`"X"`) + `}`:                                  `not only properties lead`,
		`"a":{"definitions":{"default":` + at(`"X"`) + `}}`:                         `not only properties lead`,
		`"a":{"definitions":{"x-mcp-header":{"type":"string"}}}`:                    ``,
		`"a":{"$defs":{"default":` + at(`"X"`) + `}}`:                               `not only properties lead`,
		`"a":{"$defs":{"x-mcp-header":{"type":"string"}}}`:                          ``,
		`"a":{"patternProperties":{"default":` + at(`"X"`) + `}}`:                   `not only properties lead`,
		`"a":{"patternProperties":{"x-mcp-header":{"type":"string"}}}`:              ``,
		`"a":{"dependentSchemas":{"default":` + at(`"X"`) + `}}`:                    `not only properties lead`,
		`"a":{"dependentSchemas":{"x-mcp-header":{"type":"string"}}}`:               ``,
		// What only looks like one.
		`"a":{"default":` + at(`"X"`) + `}`:                                    ``,
		`"a":{"const":` + at(`""`) + `,"enum":[` + at(`""`) + `]}`:             ``,
		`"a":{"examples":[` + at(`""`) + `]}`:                                  ``,
		`"x-mcp-header":{"type":"string"}`:                                     ``,
		`"x-mcp-header":{"type":"string","x-mcp-header":"X"}`:                  ``,
		`"default":` + at(`"X"`) + `,"enum":` + at(`"Y"`):                      ``,
		`"a":{"description":"x-mcp-header"}`:                                   ``,
		`"a":{"type":["string","null"],"x-mcp-header":"!#$%&'*+-.^_|~09azAZ"}`: ``,
		`"a":{"type":["integer","string"],"x-mcp-header":"X"}`:                 ``,
	} {
		t.Run(properties, func(t *testing.T) {
			checkLeaks(t)
			good, bad := htTool("good", `"a":{"type":"string","x-mcp-header":"X"}`), htTool("bad", properties)
			assert.Assert(t, json.Valid([]byte(bad)), bad)
			p, s, warnings := htParams(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
				htAnswer(w, 200, htListed(string(m.ID), good, bad, good))
			})
			p.say(htModern(1, "tools/list", ""))
			if want == "" {
				p.expect(htListed("1", good, bad, good))
				assert.Equal(t, len(*warnings), 0)
			} else {
				p.expect(htListed("1", good, good))
				assert.Equal(t, len(*warnings), 1)
				assert.Assert(t, is.Contains((*warnings)[0], want))
				assert.Assert(t, is.Contains((*warnings)[0], `"bad"`))
			}
			assert.DeepEqual(t, htCall(t, p, s, "good", `{"a":"x"}`), map[string]string{"X": "x"})
		})
	}
}

// TestParamHeadersRoot: the schema itself is no parameter.
func TestParamHeadersRoot(t *testing.T) {
	checkLeaks(t)
	p, _, warnings := htParams(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
		htAnswer(w, 200, htListed(string(m.ID), `{"name":"bad","inputSchema":{"type":"string","x-mcp-header":"X"}}`,
			`{"name":"good","outputSchema":{"type":"string","x-mcp-header":"X"}}`))
	})
	p.say(htModern(1, "tools/list", ""))
	p.expect(htListed("1", `{"name":"good","outputSchema":{"type":"string","x-mcp-header":"X"}}`))
	assert.Equal(t, len(*warnings), 1)
}

// TestParamHeadersUntouched: what is in the list beside the tools stays as it is written, and so do the tools that stay.
func TestParamHeadersUntouched(t *testing.T) {
	const bad = `{ "name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"X"}}}}`
	const good = "{ \"name\" : \"g\\u006fod\",\t\"x\":1e5, \"inputSchema\":{ \"properties\":{\"a\":{\"x-mcp-header\":\"\\u0058\",\"type\":\"string\"}}}}"
	for _, c := range []struct{ list, want string }{
		{"\n{ \"result\" : {\"nextCursor\":\"]\\\"}\" , \"tools\" : [ " + good + " , " + bad + " ] ,\"ttlMs\": 1.50, \"_meta\":{\"tools\":[" + bad + "]}} ,\"id\":1 , \"jsonrpc\":\"2.0\"} ",
			"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"nextCursor\":\"]\\\"}\" , \"tools\" : [" + good + "] ,\"ttlMs\": 1.50, \"_meta\":{\"tools\":[" + bad + "]}}}"},
		{htListed("1", bad), htListed("1")},
		{htListed("1", bad, bad), htListed("1")},
		{htListed("1", good), htListed("1", good)},
		{htListed("1", " "+good), htListed("1", " "+good)},
		{htListed("1"), htListed("1")},
		{htListed(`"1"`, bad, good), htListed(`"1"`, good)},
		{`{"jsonrpc":"2.0","id":1,"result":{"tools":null}}`, `{"jsonrpc":"2.0","id":1,"result":{"tools":null}}`},
		{`{"jsonrpc":"2.0","id":1,"result":{"tools":{"a":[` + bad + `]}}}`, `{"jsonrpc":"2.0","id":1,"result":{"tools":{"a":[` + bad + `]}}}`},
		{`{"jsonrpc":"2.0","id":1,"result":{"tools":[5,null,"x",[],{"name":5,"inputSchema":"x-mcp-header"}]}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"tools":[5,null,"x",[],{"name":5,"inputSchema":"x-mcp-header"}]}}`},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{`{"jsonrpc":"2.0","id":1,"result":[]}`, `{"jsonrpc":"2.0","id":1,"result":[]}`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}`},
	} {
		for _, streaming := range []bool{false, true} {
			checkLeaks(t)
			p, s, _ := htParams(t, func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
				const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`
				if streaming {
					htStream(w, htEvent(progress), htEvent(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), htEvent(htListed("77", bad)), "data: "+strings.ReplaceAll(c.list, "\n", "\ndata: ")+"\n\n")
					return
				}
				htAnswer(w, 200, c.list)
			})
			p.say(htModern(1, "tools/list", ""))
			if streaming {
				p.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, htListed("77", bad))
			}
			p.expect(c.want)
			if strings.Contains(c.list, good) {
				assert.DeepEqual(t, htCall(t, p, s, "good", `{"a":"x"}`), map[string]string{"X": "x"})
			}
			p.close()
		}
	}
}

// TestParamHeadersPages: each page adds to what is known, and a tool that comes again is as it came last. What other requests
// bring, and lists of the handshake era, mean nothing.
func TestParamHeadersPages(t *testing.T) {
	checkLeaks(t)
	const bad = `{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"X"}}}}`
	var tools string
	p, s, warnings := htParams(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
		htAnswer(w, 200, htListed(string(m.ID), tools))
	})
	list := func(id int, tool string) {
		tools = tool
		p.say(htModern(id, "tools/list", `"cursor":"c",`))
		p.expect(htListed(fmt.Sprint(id), tool))
	}
	list(1, htTool("t", `"a":{"type":"string","x-mcp-header":"A"}`))
	list(2, htTool("u", `"a":{"type":"string","x-mcp-header":"B"}`))
	assert.DeepEqual(t, htCall(t, p, s, "t", `{"a":"x"}`), map[string]string{"A": "x"})
	assert.DeepEqual(t, htCall(t, p, s, "u", `{"a":"x"}`), map[string]string{"B": "x"})
	list(3, htTool("t", `"a":{"type":"string"},"b":{"type":"string","x-mcp-header":"C"}`))
	assert.DeepEqual(t, htCall(t, p, s, "t", `{"a":"x","b":"y"}`), map[string]string{"C": "y"})
	list(4, htTool("t", `"a":{"type":"string"}`))
	assert.DeepEqual(t, htCall(t, p, s, "t", `{"a":"x","b":"y"}`), map[string]string{})
	assert.DeepEqual(t, htCall(t, p, s, "u", `{"a":"x"}`), map[string]string{"B": "x"})

	tools = bad
	p.say(htRequest(5, "tools/list", ""))
	p.expect(htListed("5", bad))
	assert.Equal(t, len(*warnings), 0)
	for id := 6; id < 9; id++ { // of which the user is told once
		p.say(htModern(id, "tools/list", ""))
		p.expect(htListed(fmt.Sprint(id)))
		assert.Equal(t, len(*warnings), 1)
	}
	list(9, htTool("t", ""))
	tools = strings.Replace(bad, "number", "array", 1) + "," + strings.Replace(bad, `"X"`, `"x y"`, 1)
	p.say(htModern(10, "tools/list", ""))
	p.expect(htListed("10"))
	assert.Equal(t, len(*warnings), 2)
}

// TestParamHeadersRace: what a list says is known to every call after it, and its tools were sorted out, even if Write has returned
// before the reader is through.
func TestParamHeadersRace(t *testing.T) {
	checkLeaks(t)
	const bad = `{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"X"}}}}`
	p, s, _ := htParams(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
		if string(m.ID) == "0" {
			htAnswer(w, 503, "no")
			return
		}
		htAnswer(w, 200, htListed(string(m.ID), bad, htTool("t"+string(m.ID), `"a":{"type":"string","x-mcp-header":"A"}`)))
	})
	for id := range 200 {
		_ = p.write(htModern(id, "tools/list", ""))
		if id > 0 {
			p.expect(htListed(fmt.Sprint(id), htTool(fmt.Sprint("t", id), `"a":{"type":"string","x-mcp-header":"A"}`)))
			assert.DeepEqual(t, htCall(t, p, s, fmt.Sprint("t", id), `{"a":"x"}`), map[string]string{"A": "x"})
		}
	}
	lists := p.Transport.(*ParamHeaders).lists
	assert.Equal(t, len(lists), 0, "nothing is awaited any more, nor was it answered")
}

// TestParamHeadersClient: a Client gets the tools that are left, and calls them with their headers.
func TestParamHeadersClient(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
		switch m.Method {
		case "server/discover":
			htAnswer(w, 200, `{"jsonrpc":"2.0","id":1,"result":`+discoveryResult+`}`)
		case "tools/list":
			htAnswer(w, 200, htListed(string(m.ID), htTool("bad", `"a":{"type":"number","x-mcp-header":"X"}`), htTool("t", `"a":{"type":"string","x-mcp-header":"A"}`)))
		case "tools/call":
			htAnswer(w, 200, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"resultType":"complete","content":[]}}`)
		}
	})
	c, err := Connect(t.Context(), &ParamHeaders{HTTP: &HTTP{URL: s.URL}}, nil)
	assert.NilError(t, err)
	defer c.Close()
	tools, err := c.ListTools(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(tools), 1)
	_, err = c.CallTool(t.Context(), "t", json.RawMessage(`{"a":"é"}`), nil)
	assert.NilError(t, err)
	assert.Equal(t, s.last(t, "POST").Header.Get("Mcp-Param-A"), "=?base64?w6k=?=")
}

// FuzzParamFinder: an annotation is found where nothing but properties leads to it, is wrong at any other schema, and is none in a
// value.
func FuzzParamFinder(f *testing.F) {
	f.Add([]byte{0}, "Name", "string", true)
	f.Add([]byte{0, 0, 0}, "Name", "integer", false)
	f.Add([]byte{0, 1, 0}, "Name", "string", true)
	f.Add([]byte{4, 0}, "a b", "boolean", true)
	f.Add([]byte{}, "Name", "string", true)
	f.Fuzz(func(t *testing.T, steps []byte, name, kind string, above bool) {
		named := []string{"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
		plain := []string{"items", "not", "if", "then", "else", "contains", "additionalProperties", "propertyNames", "unevaluatedItems"}
		lists := []string{"oneOf", "anyOf", "allOf", "prefixItems"}
		values := []string{"default", "const", "enum", "examples"}
		names := []string{"a", "properties", "items", "default", "x-mcp-header", "type", "$defs"}
		var schema any = map[string]any{"type": kind, "x-mcp-header": name}
		if len(steps) > 50 {
			steps = steps[:50]
		}
		path, only, isValue := []string{}, true, false
		for i, step := range slices.Backward(steps) {
			outer := map[string]any{"type": "object", "required": []any{"x-mcp-header"}}
			switch key := int(step) / 8; step % 8 {
			default: // more often than the others
				step := names[key%len(names)]
				outer["properties"] = map[string]any{step: schema, "other": map[string]any{"type": "string"}}
				path = append([]string{step}, path...)
			case 4:
				outer[named[1+key%(len(named)-1)]] = map[string]any{names[i%len(names)]: schema}
				only = false
			case 5:
				outer[plain[key%len(plain)]] = schema
				only = false
			case 6:
				outer[lists[key%len(lists)]] = []any{map[string]any{}, schema}
				only = false
			case 7:
				outer[values[key%len(values)]] = []any{schema, schema}[0]
				isValue = true
			}
			schema = outer
		}
		token := name != ""
		for _, c := range []byte(name) {
			token = token && c > ' ' && c < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, rune(c))
		}
		var finder paramFinder
		finder.schema(schema, nil, true)
		switch {
		case isValue:
			assert.Equal(t, finder.wrong, "")
			assert.Equal(t, len(finder.found), 0)
		case token && only && len(path) > 0 && slices.Contains([]string{"string", "integer", "boolean"}, kind):
			assert.Equal(t, finder.wrong, "")
			assert.Equal(t, len(finder.found), 1)
			assert.Equal(t, finder.found[0].name, name)
			assert.DeepEqual(t, finder.found[0].path, path)
		default:
			assert.Assert(t, finder.wrong != "", "%v", schema)
		}
	})
}

// FuzzParamLearn: no list makes it panic, and what is left of one is JSON if it was.
func FuzzParamLearn(f *testing.F) {
	f.Add([]byte(htListed("1", htTool("bad", `"a":{"type":"number","x-mcp-header":"X"}`), htTool("t", `"a":{"type":"string","x-mcp-header":"A"}`))))
	f.Add([]byte(`{"result":{"tools":[{"inputSchema":{"x-mcp-header":[]}}]}}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		h := &ParamHeaders{tools: make(map[string][]paramHeader), Warn: func(text string) { io.WriteString(io.Discard, text) }}
		left := h.learn(message, outline(outline(message).get("result")).get("tools"))
		assert.Assert(t, !json.Valid(message) || json.Valid(left), "%s", left)
	})
}
