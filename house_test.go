package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// families are the parts of the program in the order in which they stand: each may use those before it.
var families = strings.Fields(`json rpc lines transport_stdio transport_http mcp elicitation oauth
	mistral functions agent sampling host ranking finder
	secrets files config search library offline session screen schema terminal main`)

// systems are those that the program is vetted for.
var systems = []string{"linux", "darwin", "windows"}

// familyOf is the word before the first underscore of a file's name; each transport is a family of its own.
func familyOf(file string) string {
	words := strings.Split(strings.TrimSuffix(filepath.Base(file), ".go"), "_")
	if words[0] == "transport" && len(words) > 1 {
		return words[0] + "_" + words[1]
	}
	return words[0]
}

func rank(family string) int { return slices.Index(families, family) }

// onProgramFloor reports whether a family is of the floor that nobody vendors.
func onProgramFloor(family string) bool { return rank(family) >= rank("secrets") }

// onlyProgram are the names of package os that only the program floor may use, and of them what transport_stdio uses
// for the environment of a child.
var onlyProgram = strings.Fields("Args Environ Exit Getenv LookupEnv Stderr Stdin Stdout")

// house checks files against the rules of the house.
type house struct {
	files  map[string]string          // the text of each file, by name
	uses   map[string]map[string]bool // by using and used family
	faults []string
}

// newHouse checks everything that needs no types.
func newHouse(files map[string]string) *house {
	h := &house{files: files, uses: make(map[string]map[string]bool)}
	for file, text := range files {
		h.uses[familyOf(file)] = make(map[string]bool)
		for i, line := range strings.Split(text, "\n") {
			if columns := utf8.RuneCountInString(line); columns >= 120 {
				h.fault("%s:%d: the line has %d columns", file, i+1, columns)
			}
			if strings.HasPrefix(line, "//go:embed ") && file != "library.go" {
				h.fault("%s:%d: only library.go embeds files", file, i+1)
			}
		}
		if rank(familyOf(file)) < 0 {
			h.fault("%s: there is no family %s", file, familyOf(file))
		}
		if header := readHeader(text); header.file != file {
			h.fault("%s: the header is not of the form of CONTRIBUTING.md", file)
		} else if onProgramFloor(familyOf(file)) == (header.needs != nil) {
			h.fault("%s: a header names needs if, and only if, the file is not of the program floor", file)
		}
	}
	return h
}

func (h *house) fault(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(h.faults, text) {
		h.faults = append(h.faults, text)
	}
}

// check type-checks the files that a system takes, and checks all that they use.
func (h *house) check(system string, fset *token.FileSet, imports types.Importer) {
	context := build.Default
	context.GOOS = system
	context.OpenFile = func(name string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(h.files[name])), nil
	}
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(h.files)) {
		if ok, _ := context.MatchFile("", name); ok {
			file, err := parser.ParseFile(fset, name, h.files[name], parser.SkipObjectResolution)
			if err != nil {
				h.fault("%v", err)
			}
			files = append(files, file)
		}
	}
	info := &types.Info{
		Uses:  make(map[*ast.Ident]types.Object),
		Types: make(map[ast.Expr]types.TypeAndValue),
	}
	config := types.Config{Importer: imports, Error: func(err error) { h.fault("%s: %v", system, err) }}
	pkg, _ := config.Check("mcpagent", fset, files, info)
	c := &check{house: h, fset: fset, pkg: pkg, info: info}
	for id, object := range info.Uses {
		c.use(id.Pos(), object)
	}
	for _, file := range files {
		ast.Inspect(file, c.node)
	}
	for _, name := range pkg.Scope().Names() {
		if v, ok := pkg.Scope().Lookup(name).(*types.Var); ok && !fixed(v.Type()) {
			h.fault("%v: the variable %s is no error, regexp or embed.FS: %v", fset.Position(v.Pos()), name, v.Type())
		}
	}
}

// finish checks the lines of needs, when all systems have been checked: each file names all that its family needs,
// also through others, so that whoever copies these has all.
func (h *house) finish() {
	for file, text := range h.files {
		family := familyOf(file)
		if onProgramFloor(family) || rank(family) < 0 {
			continue
		}
		needed, needs := map[string]bool{family: true}, []string{}
		for _, f := range slices.Backward(families[:rank(family)+1]) {
			if needed[f] {
				maps.Copy(needed, h.uses[f])
				needs = slices.Insert(needs, 0, f)
			}
		}
		needs = needs[:len(needs)-1]
		if !slices.Equal(needs, readHeader(text).needs) {
			h.fault("%s: the header must say: // Needs: %s. %s",
				file, strings.Join(append([]string{"Go 1.25"}, needs...), ", "), family)
		}
	}
	slices.Sort(h.faults)
}

// check is the check of one system's files.
type check struct {
	*house
	fset *token.FileSet
	pkg  *types.Package
	info *types.Info
}

// use checks that what stands at pos may use the object.
func (c *check) use(pos token.Pos, object types.Object) {
	at := c.fset.Position(pos)
	from := familyOf(at.Filename)
	if object.Pkg() != c.pkg {
		if object.Pkg() != nil && !onProgramFloor(from) && (object.Pkg().Path() == "flag" ||
			object.Pkg().Path() == "os" && slices.Contains(onlyProgram, object.Name()) &&
				(from != "transport_stdio" || object.Name() != "Environ")) {
			c.fault("%v: only the program floor uses %s.%s", at, object.Pkg().Name(), object.Name())
		}
		return
	}
	file := c.fset.Position(object.Pos()).Filename
	to := familyOf(file)
	if file == "" || from == to {
		return
	}
	if rank(to) > rank(from) {
		c.fault("%v: %s uses %s of %s, which does not stand above it", at, from, object.Name(), to)
	}
	if !object.Exported() && to != "json" {
		c.fault("%v: %s uses %s of %s, which is not exported", at, from, object.Name(), to)
	}
	c.uses[from][to] = true
}

// node finds uses of fields that are not named, changes of package-level variables, and init functions.
func (c *check) node(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.FuncDecl:
		if n.Recv == nil && n.Name.Name == "init" {
			c.fault("%v: an init function", c.fset.Position(n.Pos()))
		}
	case *ast.CompositeLit:
		s, ok := c.info.TypeOf(n).Underlying().(*types.Struct)
		for i, element := range n.Elts {
			if _, named := element.(*ast.KeyValueExpr); ok && !named && i < s.NumFields() {
				c.use(element.Pos(), s.Field(i))
			}
		}
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			if selector, ok := left.(*ast.SelectorExpr); ok {
				left = selector.Sel
			}
			id, _ := left.(*ast.Ident)
			if v, ok := c.info.Uses[id].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				c.fault("%v: the package-level variable %s is changed", c.fset.Position(id.Pos()), id.Name)
			}
		}
	}
	return true
}

// fixed reports whether a variable of a type stays as it is unless it is assigned to.
func fixed(t types.Type) bool {
	return types.Implements(t, types.Universe.Lookup("error").Type().Underlying().(*types.Interface)) ||
		slices.Contains([]string{"*regexp.Regexp", "embed.FS"}, types.TypeString(t, nil))
}

// header is what the first lines of a file say.
type header struct {
	file, idea string
	needs      []string // families; nil if there is no line for them
}

var headerForm = regexp.MustCompile(
	`^// (\S+\.go) - (.+)\.\n(// Needs: Go 1\.25((?:, [a-z_]+)*)\.\n)?// SPDX-License-Identifier: 0BSD\n\n`)

// readHeader returns an empty header for a file without one of the right form.
func readHeader(text string) (h header) {
	if part := headerForm.FindStringSubmatch(text); part != nil {
		h.file, h.idea = part[1], part[2]
		if part[3] != "" {
			h.needs = strings.Fields(strings.ReplaceAll(part[4], ",", " "))
		}
	}
	return h
}

// readFiles returns the texts of the program's files.
func readFiles(t *testing.T) map[string]string {
	names, _ := filepath.Glob("*.go")
	files := make(map[string]string)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name)
			assert.NilError(t, err)
			files[name] = string(text)
		}
	}
	return files
}

// TestColumns: lines of the tests, too, have at most 120 characters. (TestFloors sees to those of the program.)
func TestColumns(t *testing.T) {
	names, _ := filepath.Glob("*_test.go")
	for _, name := range names {
		for i, line := range strings.Split(readText(t, name), "\n") {
			assert.Check(t, utf8.RuneCountInString(line) <= 120, "%s:%d", name, i+1)
		}
	}
}

// standardLibrary imports what the program imports, as the compiler has it for a system.
func standardLibrary(t *testing.T, system string, fset *token.FileSet) types.Importer {
	goList := func(args ...string) string {
		list := exec.Command("go", append([]string{"list", "-f"}, args...)...)
		list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := list.Output()
		assert.NilError(t, err)
		return string(out)
	}
	imports := strings.Fields(goList(`{{join .Imports " "}}`, "."))
	out := goList(append([]string{"{{.ImportPath}} {{.Export}}", "-export", "-deps"}, imports...)...)
	exports := make(map[string]string)
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 2 {
			exports[words[0]] = words[1]
		}
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

// TestFloors: every file uses only exported names of the families above its own, names those families, and keeps the
// other rules of the house.
func TestFloors(t *testing.T) {
	h := newHouse(readFiles(t))
	for _, system := range systems {
		fset := token.NewFileSet()
		h.check(system, fset, standardLibrary(t, system, fset))
	}
	h.finish()
	assert.Check(t, len(h.faults) == 0, "%d faults:\n%s", len(h.faults), strings.Join(h.faults, "\n"))
}

// TestFloorsFails: the checker finds every kind of fault.
func TestFloorsFails(t *testing.T) {
	fset := token.NewFileSet()
	library := standardLibrary(t, "linux", fset)
	for _, row := range []struct{ fault, files string }{
		{"", "== json.go\ntype s struct{ at int }\nfunc (s) f() {}\n== rpc.go json\nfunc F() { s{at: 1}.f() }"},
		{"", "== json.go\nfunc F() {}\n== rpc.go json\nfunc G() { F() }\n== mcp.go json rpc\nfunc H() { G() }"},
		{"", "== mcp.go\nimport \"errors\"\nvar e = errors.New(``)\n== mcp_lists.go\nfunc f() error { return e }"},
		{"", "== main.go\nimport \"os\"\nfunc main() { os.Exit(1) }"},
		{"rpc.go:6:12: rpc uses F of mcp", "== rpc.go\nfunc G() { F() }\n== mcp.go\nfunc F() {}"},
		{"mcp.go:6:12: mcp uses f of rpc", "== rpc.go\nfunc f() {}\n== mcp.go rpc\nfunc G() { f() }"},
		{"mcp.go:6:21: mcp uses f of rpc", "== rpc.go\ntype T struct{ f int }\n== mcp.go rpc\nfunc G(t T) { _ = t.f }"},
		{"mcp.go:6:17: mcp uses f of rpc", "== rpc.go\ntype T int; func (T) f() {}\n== mcp.go rpc\nfunc G(t T) { t.f() }"},
		{"mcp.go:6:11: mcp uses f of rpc", "== rpc.go\ntype T struct{ f int }\n== mcp.go rpc\nvar V = T{1}"},
		{"main.go:5:15: main uses f of config", "== config.go\nfunc f() {}\n== main.go\nfunc main() { f() }"},
		{"mcp.go: the header must say: // Needs: Go 1.25. mcp", "== rpc.go\n== mcp.go rpc"},
		{"mcp.go: the header must say: // Needs: Go 1.25, json, rpc. mcp",
			"== json.go\nfunc F() {}\n== rpc.go json\nfunc G() { F() }\n== mcp.go rpc\nfunc H() { G() }"},
		{"utils.go: there is no family utils", "== utils.go"},
		{"main.go: a header names needs if, and only if", "== rpc.go\n== main.go rpc"},
		{"mcp.go:6: the line has 130 columns", "== mcp.go\n" + strings.Repeat("/", 130)},
		{"mcp.go:7: only library.go embeds", "== mcp.go\nimport _ \"embed\"\n//go:embed README.md\nvar S string"},
		{"mcp.go:6:1: an init function", "== mcp.go\nfunc init() {}"},
		{"mcp.go:7:15: only the program floor uses os.Exit", "== mcp.go\nimport \"os\"\nfunc F() { os.Exit(1) }"},
		{"mcp.go:7:17: only the program floor uses flag.Parse", "== mcp.go\nimport \"flag\"\nfunc F() { flag.Parse() }"},
		{"linux: mcp.go:6:12: undefined: g", "== mcp.go\nfunc F() { g() }"},
		{"mcp.go:6:5: the variable v is no error", "== mcp.go\nvar v = []int{1}"},
		{"mcp.go:6:25: the package-level variable v is changed", "== mcp.go\nvar v error; func F() { v = nil }"},
		{"is changed", "== mcp.go\nimport \"net/http\"\nfunc F() { http.DefaultClient = nil }"},
	} {
		h := newHouse(fakeFiles(row.files))
		h.check("linux", fset, library)
		h.finish()
		assert.Check(t, is.Contains(strings.Join(append(h.faults, ""), "\n"), row.fault), row.files)
		assert.Check(t, row.fault != "" || len(h.faults) == 0, "%s\n%v", row.files, h.faults)
	}
}

// fakeFiles makes files of sections "== name needs…", each with its header.
func fakeFiles(text string) map[string]string {
	files := make(map[string]string)
	for section := range strings.SplitSeq(text, "== ") {
		first, body, _ := strings.Cut(section, "\n")
		if words := strings.Fields(first); len(words) > 0 {
			needs := "// Needs: " + strings.Join(append([]string{"Go 1.25"}, words[1:]...), ", ") + ".\n"
			if onProgramFloor(familyOf(words[0])) && len(words) == 1 {
				needs = ""
			}
			files[words[0]] = "// " + words[0] + " - an idea.\n" + needs +
				"// SPDX-License-Identifier: 0BSD\n\npackage main\n" + body
		}
	}
	return files
}

const (
	maxColumns      = 100 // of a line; a tab counts four
	maxWide         = 0   // lines over maxColumns, in 1,000 lines of code
	maxLength       = 60  // lines of a function
	maxBranches     = 15  // of a function
	maxStructFields = 15  // of a type of the program floor
	minComments     = 22  // lines of comment beside 100 lines of code, over the two upper floors
)

// plainness checks files against the section "Plain before short" of the design.
type plainness struct {
	fset     *token.FileSet
	faults   []string
	code     int // lines, without comments and blank ones
	wide     int // lines
	upper    int // lines of code of the two upper floors
	comments int // lines there
}

func newPlainness(files map[string]string) *plainness {
	p := &plainness{fset: token.NewFileSet()}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		file, err := parser.ParseFile(p.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			p.faults = append(p.faults, err.Error())
			continue
		}
		p.countLines(name, text)
		ast.Inspect(file, func(node ast.Node) bool {
			p.checkNode(node, onProgramFloor(familyOf(name)))
			return true
		})
		p.checkComments(file, strings.Split(text, "\n"))
	}
	if p.wide*1000 > maxWide*p.code {
		p.fault(token.NoPos, "%d of %d lines have more than %d columns", p.wide, p.code, maxColumns)
	}
	if p.comments*100 < minComments*p.upper {
		p.fault(token.NoPos, "%d lines of comments beside %d lines of code, on the upper floors", p.comments, p.upper)
	}
	return p
}

func (p *plainness) fault(at token.Pos, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at.IsValid() {
		text = p.fset.Position(at).String() + ": " + text
	}
	p.faults = append(p.faults, text)
}

func (p *plainness) countLines(name, text string) {
	code, comments := 0, 0
	for line := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > maxColumns {
			p.wide++
		}
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "//") {
			comments++
		} else if trimmed != "" {
			code++
		}
	}
	p.code += code
	if !onProgramFloor(familyOf(name)) {
		p.upper += code
		p.comments += comments
	}
}

func (p *plainness) checkNode(node ast.Node, onProgram bool) {
	switch n := node.(type) {
	case *ast.IfStmt:
		p.checkHeader(n.Init)
	case *ast.SwitchStmt:
		p.checkHeader(n.Init)
	case *ast.TypeSwitchStmt:
		p.checkHeader(n.Init)
	case *ast.CallExpr:
		p.checkOr(n)
	case *ast.StructType:
		if count := n.Fields.NumFields(); onProgram && count > maxStructFields {
			p.fault(n.Pos(), "a type of %d fields", count)
		}
	case *ast.FuncDecl:
		p.checkFunction(n)
	}
}

// checkHeader finds an assignment, an increment or a call before the condition of an if or a switch. Declarations, and
// err = f(), are what Go's readers expect there.
func (p *plainness) checkHeader(statement ast.Stmt) {
	if statement == nil {
		return
	}
	hidden := true
	if assignment, ok := statement.(*ast.AssignStmt); ok {
		hidden = assignment.Tok != token.DEFINE
		if assignment.Tok == token.ASSIGN {
			hidden = slices.ContainsFunc(assignment.Lhs, func(left ast.Expr) bool {
				id, ok := left.(*ast.Ident)
				return !ok || id.Name != "err" && id.Name != "_"
			})
		}
	}
	if hidden {
		p.fault(statement.Pos(), "a statement is hidden in a header")
	}
}

// checkOr finds a cmp.Or that is meant as an else: it evaluates all of its arguments.
func (p *plainness) checkOr(call *ast.CallExpr) {
	if function, ok := call.Fun.(*ast.SelectorExpr); !ok || fmt.Sprint(function.X, function.Sel) != "cmp Or" {
		return
	}
	for _, argument := range call.Args[1:] {
		inner, isCall := argument.(*ast.CallExpr)
		if !isCall {
			continue
		}
		name, _ := inner.Fun.(*ast.Ident)
		if name == nil || !slices.Contains([]string{"new", "max", "min", "len", "string"}, name.Name) {
			p.fault(call.Pos(), "cmp.Or calls a function, whatever stands before it")
		}
	}
}

func (p *plainness) checkFunction(f *ast.FuncDecl) {
	if f.Body == nil {
		return
	}
	name := f.Name.Name
	if f.Recv != nil {
		name = receiverOf(f) + "." + name
	}
	if lines := p.fset.Position(f.End()).Line - p.fset.Position(f.Pos()).Line; lines > maxLength {
		p.fault(f.Pos(), "%s has %d lines", name, lines)
	}
	branches := 1
	ast.Inspect(f.Body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			branches++
		case *ast.CaseClause:
			if n.List != nil {
				branches++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				branches++
			}
		}
		return true
	})
	if branches > maxBranches {
		p.fault(f.Pos(), "%s has %d branches", name, branches)
	}
}

// receiverOf returns the name of the type that a method belongs to.
func receiverOf(f *ast.FuncDecl) string {
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	return fmt.Sprint(receiver)
}

// bareClause finds a trailing comment that is half a sentence about the statement before it.
var bareClause = regexp.MustCompile(`^(also|as|because|but|else|so|that|which)\b`)

// checkComments checks that a comment above code is made of whole sentences, and that one behind code stands at a
// field, a constant, a variable or an element: what a statement does is told above it.
func (p *plainness) checkComments(file *ast.File, lines []string) {
	declared := linesWithTrailing(p.fset, file)
	for _, group := range file.Comments {
		at := p.fset.Position(group.Pos())
		text := strings.TrimSpace(group.Text())
		if text == "" || group.Pos() < file.Package {
			continue
		}
		if strings.TrimSpace(lines[at.Line-1][:at.Column-1]) != "" {
			if !declared[at.Line] {
				p.fault(group.Pos(), "a comment behind a statement: %s", text)
			} else if bareClause.MatchString(text) {
				p.fault(group.Pos(), "a comment is a bare clause: %s", text)
			}
			continue
		}
		isBlock := strings.Contains(text, "\n\t") || strings.Contains(text, "\n  ")
		if !isBlock && !strings.ContainsAny(text[len(text)-1:], ".:?!)\"'`") {
			p.fault(group.Pos(), "a comment has no end: %.60q", text)
		}
		first, _, _ := strings.Cut(text, " ")
		if unicode.IsLower([]rune(text)[0]) && !p.namesNext(file, group, first) {
			p.fault(group.Pos(), "a comment has no beginning: %.60q", text)
		}
	}
}

// linesWithTrailing returns the lines of a file on which a field, a constant, a variable or an element of a literal
// ends: where a comment may stand behind code.
func linesWithTrailing(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := make(map[int]bool)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.Field, *ast.ValueSpec, *ast.TypeSpec:
			lines[fset.Position(n.End()).Line] = true
		case *ast.CompositeLit:
			for _, element := range n.Elts {
				if end := fset.Position(element.End()).Line; end != fset.Position(n.End()).Line {
					lines[end] = true
				}
			}
		}
		return true
	})
	return lines
}

// namesNext reports whether a word is the name of something on the lines just below a comment, as the first word of a
// doc comment is.
func (p *plainness) namesNext(file *ast.File, group *ast.CommentGroup, word string) bool {
	word = strings.TrimRight(word, ",:;.")
	word = strings.TrimSuffix(word, "'s")
	last := p.fset.Position(group.End()).Line
	found := false
	ast.Inspect(file, func(node ast.Node) bool {
		if id, ok := node.(*ast.Ident); ok && id.Name == word {
			line := p.fset.Position(id.Pos()).Line
			found = found || line > last && line <= last+3
		}
		return !found
	})
	return found
}

// TestPlain: the program is written plainly, as far as a machine can see it.
func TestPlain(t *testing.T) {
	p := newPlainness(readFiles(t))
	assert.Check(t, len(p.faults) == 0, "%d faults:\n%s", len(p.faults), strings.Join(p.faults, "\n"))
	t.Logf("%d lines of code, %d wide, %d comments beside %d on the upper floors",
		p.code, p.wide, p.comments, p.upper)
}

// TestPlainFails: the checker finds every kind of fault, and none in what is plain.
func TestPlainFails(t *testing.T) {
	above := strings.Repeat("// A sentence.\n", 60)
	loop := strings.Repeat("\tif a && b {\n\t}\n", 8)
	for _, row := range []struct{ fault, file, text string }{
		{"", "rpc.go", "// A sentence.\nfunc f() {\n\tif x, err := g(); x {\n\t}\n\tif err = g(); err != nil {\n\t}\n}"},
		{"hidden in a header", "rpc.go", "func f() {\n\tif a = b; a {\n\t}\n}"},
		{"hidden in a header", "rpc.go", "func f() {\n\tif a, err = g(); a {\n\t}\n}"},
		{"hidden in a header", "rpc.go", "func f() {\n\tif n++; n > 1 {\n\t}\n}"},
		{"hidden in a header", "rpc.go", "func f() {\n\tif n += 2; n > 1 {\n\t}\n}"},
		{"hidden in a header", "rpc.go", "func f() {\n\tswitch g(); a {\n\t}\n}"},
		{"hidden in a header", "rpc.go", "func f() {\n\tswitch s.a = 1; x := y.(type) {\n\t}\n}"},
		{"cmp.Or calls a function", "rpc.go", "var a = cmp.Or(b, f())"},
		{"", "rpc.go", "var a = cmp.Or(b, max(c, d), e)"},
		{"lines have more than 100", "rpc.go", "var a = `" + strings.Repeat("a", 100) + "`"},
		{"lines have more than 100", "rpc.go", "var a struct{\n" + strings.Repeat("\t", 25) + "b int\n}"},
		{"f has 61 lines", "rpc.go", "func f() {" + strings.Repeat("\n", 61) + "}"},
		{"", "rpc.go", "func f() {" + strings.Repeat("\n", 60) + "}"},
		{"T.f has 17 branches", "rpc.go", "func (t *T) f() {\n" + loop + "}"},
		{"T.f has 17 branches", "rpc.go", "func (t *T[A]) f() {\n" + loop + "}"},
		{"a type of 16 fields", "main.go", "type T struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p int }"},
		{"", "main.go", "type T struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o int }"},
		{"", "rpc.go", "type T struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p int }"},
		{"a comment behind a statement", "rpc.go", "func f() {\n\tg() // and once more\n}"},
		{"a comment is a bare clause", "rpc.go", "var a int // which is b"},
		{"", "rpc.go", "type T struct {\n\ta int // of b\n}\nvar v = []int{\n\t1, // one\n\t2, // two\n}"},
		{"a comment has no end", "rpc.go", "// This is\nvar a int"},
		{"a comment has no beginning", "rpc.go", "// then b.\nvar a int"},
		{"", "rpc.go", "// a is b.\nvar a int"},
	} {
		text := "package main\n\n" + row.text + "\n"
		if row.fault == "" || row.file == "rpc.go" {
			text += above
		}
		found := newPlainness(map[string]string{row.file: text}).faults
		assert.Check(t, is.Contains(strings.Join(append(found, ""), "\n"), row.fault), row.text)
		assert.Check(t, row.fault != "" || len(found) == 0, "%s\n%v", row.text, found)
	}
	found := newPlainness(map[string]string{"rpc.go": "package main\n\nvar a int\n"}).faults
	assert.Check(t, is.Contains(strings.Join(found, "\n"), "0 lines of comments"))
}

// vetAlone copies the files of families into a module of their own, under another package name, and vets it for every
// system. The module proxy is off: the standard library is all there is.
func vetAlone(t *testing.T, files map[string]string, list []string) error {
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module vendored\n\ngo 1.25\n"), 0o600))
	for file, text := range files {
		if slices.Contains(list, familyOf(file)) {
			text = strings.Replace(text, "\npackage main\n", "\npackage vendored\n", 1)
			assert.NilError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
	}
	for _, system := range systems {
		vet := exec.Command("go", "vet", ".")
		vet.Dir = dir
		vet.Env = append(os.Environ(), "GOOS="+system, "GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
		if out, err := vet.CombinedOutput(); err != nil {
			return fmt.Errorf("%v for %s: %w\n%s", list, system, err, out)
		}
	}
	return nil
}

// TestVendorable: each family of the two upper floors works in another program with the families that it names, and
// needs each of them. So does oauth without what its users may not want: grants without a person, and the guard.
// Who has a listener or a store leaves out those of the family, too.
func TestVendorable(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("runs go vet a hundred times, and finds no races")
	}
	files := readFiles(t)
	for _, family := range families[:rank("secrets")] {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			all := append([]string{family}, readHeader(files[family+".go"]).needs...)
			assert.Check(t, vetAlone(t, files, all))
			for i := 1; i < len(all); i++ {
				rest := slices.Delete(slices.Clone(all), i, i+1)
				assert.Check(t, vetAlone(t, files, rest) != nil, "%s does not need %s", family, all[i])
			}
		})
	}
	t.Run("oauth alone", func(t *testing.T) {
		t.Parallel()
		alone := map[string]string{"oauth.go": files["oauth.go"], "oauth_wire.go": files["oauth_wire.go"]}
		assert.Check(t, vetAlone(t, alone, []string{"oauth"}))
		for _, name := range []string{"oauth_listen.go", "oauth_store.go"} {
			alone[name] = files[name]
			assert.Check(t, vetAlone(t, alone, []string{"oauth"}), name)
		}
		delete(alone, "oauth_wire.go")
		assert.Check(t, vetAlone(t, alone, []string{"oauth"}) != nil)
	})
}

// familyTable is the table of families in docs/read.md.
func familyTable(files map[string]string) string {
	var table strings.Builder
	table.WriteString("| family | idea | needs |\n|---|---|---|\n")
	for _, family := range families {
		header := readHeader(files[family+".go"])
		if header.file == "" {
			continue // TestFloors reports it
		}
		needs := strings.Join(header.needs, ", ")
		if onProgramFloor(family) {
			needs = "(program)"
		} else if needs == "" {
			needs = "–"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", family, header.idea, needs)
	}
	return table.String()
}

var writeTable = flag.Bool("table", false, "write the table of families into docs/read.md")

// TestFamilyTable: docs/read.md has the table of families as the files have it.
func TestFamilyTable(t *testing.T) {
	page, want := readText(t, "docs/read.md"), familyTable(readFiles(t))
	old := regexp.MustCompile(`\| family \| idea \|.*\n(\|.*\n)*`)
	written := old.ReplaceAllLiteralString(page, want)
	if *writeTable {
		assert.NilError(t, os.WriteFile("docs/read.md", []byte(written), 0o644))
		return
	}
	assert.Check(t, page == written, "go test -run TestFamilyTable . -table writes:\n%s", want)
	// A page without the table would stay as it is.
	assert.Check(t, strings.Contains(page, want))
}

func readText(t testing.TB, path string) string {
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	return string(text)
}

// TestStandardLibraryOnly: the program imports nothing else.
func TestStandardLibraryOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	assert.NilError(t, err)
	assert.Equal(t, strings.TrimSpace(string(out)), "mcpagent")
}

// TestReferenceTemperature: docs/reference.md has the range that the flag, its help and a server's requests have.
func TestReferenceTemperature(t *testing.T) {
	want := fmt.Sprintf("| from 0, for the likeliest words, to %v |", MaxTemperature)
	assert.Assert(t, strings.Contains(readText(t, "docs/reference.md"), want), want)
}

// TestFirstAnswer: the README's first command prints what docs/start.md says, but for the numbers.
func TestFirstAnswer(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("builds the program")
	}
	sample := regexp.MustCompile("(?s)The answer is on stdout:\n\n```\n(.*?)…\n```.*?on stderr:\n\n```\n(.*?)```")
	want := sample.FindStringSubmatch(readText(t, "docs/start.md"))
	assert.Assert(t, want != nil)
	assert.Assert(t, len(want[1]) > 100, "docs/start.md shows no answer")
	program := filepath.Join(t.TempDir(), "mcpagent.exe")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	run := exec.Command(program, "How does a call find its answer?")
	run.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	var stdout, stderr strings.Builder
	run.Stdout, run.Stderr = &stdout, &stderr
	assert.NilError(t, run.Run(), "%s", &stderr)
	varies := regexp.MustCompile(`\d+m?s?| +\n`) // numbers, and spaces that an editor removes
	plain := func(text string) string { return varies.ReplaceAllString(text, "\n") }
	ok := strings.HasPrefix(plain(stdout.String()), plain(want[1]))
	assert.Check(t, ok, "%s\nbegins otherwise than\n%s", &stdout, want[1])
	assert.Check(t, is.Equal(plain(stderr.String()), plain(want[2])))
}

// declarations returns what a file declares: functions, types, values, and methods and fields as Type.Name.
func declarations(t *testing.T, path string) map[string]bool {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	assert.NilError(t, err)
	names := make(map[string]bool)
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok {
			name := f.Name.Name
			if f.Recv != nil {
				name = receiverOf(f) + "." + name
			}
			names[name] = true
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		case *ast.TypeSpec:
			names[n.Name.Name] = true
			var fields *ast.FieldList
			switch inner := n.Type.(type) {
			case *ast.StructType:
				fields = inner.Fields
			case *ast.InterfaceType:
				fields = inner.Methods
			}
			for i := 0; fields != nil && i < len(fields.List); i++ {
				for _, name := range fields.List[i].Names {
					names[n.Name.Name+"."+name.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// mentions checks what the pages mention.
type mentions struct {
	files map[string]map[string]bool // the declarations of each file
	all   map[string]bool            // of all files together
	usage string                     // of the program
	wire  []string                   // the lines of all transcripts, and of the session with an authorization server
}

func newMentions(t *testing.T) *mentions {
	m := &mentions{files: make(map[string]map[string]bool), all: make(map[string]bool), usage: usage(helpColumns)}
	paths, err := filepath.Glob("*.go")
	assert.NilError(t, err)
	for _, path := range paths {
		m.files[path] = declarations(t, path)
		maps.Copy(m.all, m.files[path])
	}
	paths, err = filepath.Glob("testdata/transcripts/*.txt")
	assert.NilError(t, err)
	for _, path := range append(paths, "testdata/authorization.txt") {
		m.wire = append(m.wire, strings.Split(readText(t, path), "\n")...)
	}
	return m
}

var (
	fence      = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	inFile     = regexp.MustCompile(`^(\w+\.go): ([\w.]+)$`)
	localPath  = regexp.MustCompile(`^[\w*]+\.(go|md)$|^(\.ci|docs|testdata)/\S+$|^LICENSE$`)
	testName   = regexp.MustCompile(`^((?:Test|Fuzz|Example|Benchmark)[A-Z]\w*)(/\S+)?$`)
	flagName   = regexp.MustCompile(`^(-[a-z][a-z-]*)( [A-Z]+)?$`)
	variable   = regexp.MustCompile(`^(MCP|MISTRAL)_[A-Z_]+$`)
	memberName = regexp.MustCompile(`^[A-Z]\w*\.[A-Z]\w*$`)
)

// isConfiguration reports whether a text is a configuration in which nothing is wrong or without effect.
func isConfiguration(text string) bool {
	lookup := func(string) (string, bool) { return "value", true }
	config, err := ParseConfig([]byte(text), lookup, ReadRegular, new(Secrets))
	isWrong := func(s Server) bool { return s.Err != nil }
	return err == nil && len(config.Servers) > 0 && config.Warnings == nil && !slices.ContainsFunc(config.Servers, isWrong)
}

// shellCommands returns the words of each command of a pipeline, without its comment and without what < and > name.
func shellCommands(line string) (commands [][]string) {
	line, _, _ = strings.Cut(line, " # ")
	words, err := SplitWords(line)
	if err != nil {
		return [][]string{{"mcpagent", "-" + err.Error()}}
	}
	commands = [][]string{nil}
	for _, word := range words {
		last := len(commands) - 1
		switch {
		case word == "|":
			commands = append(commands, nil)
		case !strings.ContainsAny(word[:min(1, len(word))], "<>"):
			commands[last] = append(commands[last], word)
		}
	}
	return commands
}

// runs reports whether a command sets variables of the program or runs it, and if so, what the program would not
// understand: a variable, a flag, or a command.
func (m *mentions) runs(words []string) (isOurs bool, err error) {
	for i, word := range words {
		name, _, _ := strings.Cut(word, "=")
		switch {
		case variable.MatchString(name):
			isOurs = true
			if !strings.Contains(m.usage, name+" ") {
				return true, fmt.Errorf("no variable %s", name)
			}
		case filepath.Base(word) == "mcpagent":
			return true, understands(words[i+1:])
		case !slices.Contains([]string{"env", "export", "-u"}, word) && !assignment.MatchString(word):
			return isOurs, nil
		}
	}
	return isOurs, nil
}

// understands returns what is wrong with the arguments of the program. A question has more than one word.
func understands(args []string) error {
	set, command := new(settings), ""
	words, isQuestion, err := parseFlags(set.flags(), args)
	if err == nil && len(words) > 0 && !isQuestion && !strings.ContainsAny(words[0], " …") {
		command = words[0]
		if _, isCommand := new(program).commandNamed(command); !isCommand {
			return fmt.Errorf("no command %s", command)
		}
	}
	return errors.Join(err, set.checkCommand(command))
}

// wrong returns the mentions of a page that are not true, and how many it has checked. In backquotes it checks paths,
// declarations ("file.go: Type.Method", "Type.Method"), tests, flags and variables; in blocks of wire, that each line
// stands in a transcript, where … is any text; in blocks of sh, that the program understands each of its commands; and
// that each block of json is a configuration. No line of prose is longer than 120 columns.
func (m *mentions) wrong(page string) (faults []string, checked int) {
	check := func(ok bool, text string) {
		if checked++; !ok {
			faults = append(faults, text)
		}
	}
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		if block[1] == "json" {
			check(isConfiguration(block[2]), block[2])
		}
		for line := range strings.Lines(block[2]) {
			switch block[1] {
			case "wire":
				parts := strings.Split(regexp.QuoteMeta(strings.TrimSpace(line)), "…")
				pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
				check(slices.ContainsFunc(m.wire, pattern.MatchString), line)
			case "sh":
				for _, command := range shellCommands(line) {
					if isOurs, err := m.runs(command); isOurs {
						check(err == nil, fmt.Sprintf("%s: %v", line, err))
					}
				}
			}
		}
	}
	for line := range strings.Lines(fence.ReplaceAllString(page, "")) {
		if utf8.RuneCountInString(line) > 121 && line[0] != '|' {
			check(false, "longer than 120 columns: "+line)
		}
	}
	for _, span := range codeSpan.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := strings.Join(strings.Fields(span[1]), " ")
		if part := inFile.FindStringSubmatch(text); part != nil {
			check(m.files[part[1]][part[2]], text)
		} else if localPath.MatchString(text) {
			found, _ := filepath.Glob(text)
			check(found != nil, text)
		} else if part := flagName.FindStringSubmatch(text); part != nil {
			check(regexp.MustCompile(`[ ,]`+part[1]+`[ ,]`).MatchString(m.usage), text)
		} else if variable.MatchString(text) {
			check(strings.Contains(m.usage, text+" "), text)
		} else if part := testName.FindStringSubmatch(text); part != nil {
			check(m.all[part[1]], text)
		} else if memberName.MatchString(text) {
			check(m.all[text], text)
		}
	}
	return faults, checked
}

// TestPages: the files, functions, tests, flags and variables that the pages mention are there, and the lines of
// sessions that they quote stand in a transcript.
func TestPages(t *testing.T) {
	m := newMentions(t)
	paths, err := filepath.Glob("docs/*.md")
	assert.NilError(t, err)
	pictures, err := filepath.Glob("docs/pictures/*.md")
	assert.NilError(t, err)
	total := 0
	for _, path := range slices.Concat(paths, pictures, []string{"README.md", "CONTRIBUTING.md"}) {
		faults, checked := m.wrong(readText(t, path))
		assert.Check(t, len(faults) == 0, "%s mentions what is not there:\n%s", path, strings.Join(faults, "\n"))
		total += checked
	}
	assert.Check(t, total > 200, "only %d mentions were found", total)
}

// TestPagesFails: the checker finds every kind of wrong mention, and each right one is right.
func TestPagesFails(t *testing.T) {
	m := newMentions(t)
	for right, wrong := range map[string]string{
		"`rpc.go`":                 "`utils.go`",
		"`docs/*.md`":              "`docs/none.md`",
		"`rpc.go: Conn`":           "`mcp.go: Conn`",
		"`rpc.go: Conn.Call`":      "`rpc.go: Conn.Ring`",
		"`rpc.go: Error.Code`":     "`rpc.go: Error.Cause`",
		"`Conn.Call`":              "`Conn.Ring`",
		"`TestPages`":              "`TestPaging`",
		"`-session FILE`":          "`-sessions FILE`",
		"`-q`":                     "`-quiet`",
		"`MCP_SERVER`":             "`MCP_SERVERS`",
		"```wire\n-> (end)\n```\n": "```wire\n-> (start)\n```\n",

		"```sh\nmcpagent tools -json  # all\n```\n":       "```sh\nmcpagent tool -json  # all\n```\n",
		"```sh\nls | mcpagent -q \"Why so?\" <x\n```\n":   "```sh\nls | mcpagent -quiet \"Why so?\" <x\n```\n",
		"```sh\nmcpagent tools -find x\n```\n":            "```sh\nmcpagent call a -http x\n```\n",
		"```sh\nMCP_TRUST=1 mcpagent -- hello\n```\n":     "```sh\nMCP_TRUSTED=1 mcpagent -- hello\n```\n",
		"```sh\nenv A=1 ~/bin/mcpagent whoami >x\n```\n":  "```sh\nenv A=1 ~/bin/mcpagent who >x\n```\n",
		"```sh\nexport MISTRAL_API_KEY=…\n```\n":          "```sh\nexport MISTRAL_KEY=…\n```\n",
		"```json\n{\"a\": {\"command\": \"b\"}}\n```\n":   "```json\n{\"a\": {\"comand\": \"b\"}}\n```\n",
		"`rpc.go` " + strings.Repeat("word ", 21) + "end": strings.Repeat("word ", 24) + "end",
	} {
		faults, checked := m.wrong(right)
		assert.Check(t, len(faults) == 0 && checked == 1, right)
		faults, _ = m.wrong(wrong)
		assert.Check(t, len(faults) == 1, wrong)
	}
}

// TestCopiedClient: the program in docs/copy.md lists the tools of a server with the files that the page's commands
// copy, and nothing else. What the commands copy for JSON-RPC alone is whole, too.
func TestCopiedClient(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("builds a program")
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("the page's commands are for a shell")
	}
	page, home := readText(t, "docs/copy.md"), t.TempDir()
	example := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindStringSubmatch(page)
	assert.Assert(t, example != nil)
	runPageCommands(t, page, "mcp", home)
	runPageCommands(t, page, "jsonrpc", home)
	server, err := os.Executable()
	assert.NilError(t, err)
	command := regexp.MustCompile(`mcp\.Command\{Path: .*\}`)
	own := fmt.Sprintf("mcp.Command{Path: %q, Args: []string{%q}}", server, "serve")
	dir := filepath.Join(home, "myprogram")
	for file, text := range map[string]string{
		"go.mod":  "module myprogram\n\ngo 1.25\n",
		"main.go": command.ReplaceAllLiteralString(example[1], own),
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	inModule := func(args ...string) string {
		run := exec.Command("go", args...)
		run.Dir, run.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := run.CombinedOutput()
		assert.NilError(t, err, "%s", out)
		return string(out)
	}
	inModule("vet", "./...")
	tools := inModule("run", ".")
	assert.Assert(t, strings.Contains(tools, "search_chunks - "), tools)
}

// TestCopiedModel: the model of one's own in docs/copy.md is that of ExampleModel, which compiles and answers.
func TestCopiedModel(t *testing.T) {
	shown := regexp.MustCompile("(?s)```go\n(// ruleModel .*?)```").FindStringSubmatch(readText(t, "docs/copy.md"))
	assert.Assert(t, shown != nil)
	assert.Assert(t, strings.Contains(readText(t, "example_test.go"), shown[1]), shown[1])
}

// runPageCommands runs the commands of docs/copy.md that copy files into a folder of ~/myprogram.
func runPageCommands(t *testing.T, page, folder, home string) {
	commands := regexp.MustCompile("(?s)```sh\n(mkdir -p ~/myprogram/" + folder + "\n.*?)```").FindStringSubmatch(page)
	assert.Assert(t, commands != nil)
	copyFiles := exec.Command("sh", "-e", "-c", commands[1])
	copyFiles.Env = append(os.Environ(), "HOME="+home)
	out, err := copyFiles.CombinedOutput()
	assert.NilError(t, err, "%s", out)
}
