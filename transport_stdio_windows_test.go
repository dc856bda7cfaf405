package main

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestBatchCommandLine: whatever an argument holds, cmd.exe takes it as a part of one argument.
func TestBatchCommandLine(t *testing.T) {
	const begin = `cmd.exe /e:ON /v:OFF /d /c ""C:\n p\npx.cmd"`
	for _, test := range []struct{ arg, want string }{
		{``, `""`},
		{`-y`, `"-y"`},
		{`https://h/?a=1&b=2`, `"https://h/?a=1&b=2"`},
		{`a|b<c>d^e(f)!g`, `"a|b<c>d^e(f)!g"`},
		{`"&calc.exe`, `"""&calc.exe"`},
		{`{"a":"b c"}`, `"{""a"":""b c""}"`},
		{`%PATH%`, `"%%cd:~,%PATH%%cd:~,%"`},
		{`C:\dir\`, `"C:\dir\\"`},
		{`a\"b\\c`, `"a\\""b\\c"`},
	} {
		line, err := batchCommandLine(`C:\n p\npx.cmd`, []string{test.arg, "x"})
		assert.Check(t, err)
		assert.Check(t, is.Equal(line, begin+" "+test.want+` "x""`))
	}
	for _, arg := range []string{"a\nb", "a\rb", "a\x00b"} {
		_, err := batchCommandLine("npx.cmd", []string{arg})
		assert.Check(t, is.ErrorContains(err, "line break"))
	}
}
