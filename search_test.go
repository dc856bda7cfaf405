package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

func ExampleIndex() {
	var x Index
	x.Add("tea.md", "# Tea\n\nPour water of 80 degrees over green tea.\n", true)
	x.Add("coffee.md", "# Coffee\n\nGrind the beans just before brewing.\n", true)
	for _, hit := range x.Search("How hot is the water for tea?") {
		fmt.Printf("%s:%d-%d %.2f\n", hit.Source, hit.Start, hit.End, hit.Similarity)
	}
	// Output: tea.md:1-3 0.26
}

// The passages of these texts begin at the lines marked with |.
func TestPassages(t *testing.T) {
	filler := strings.Repeat("x", 250)
	for name, test := range map[string]struct {
		prose bool
		text  string
	}{
		"declarations with their comments": {false, `
|// a.go - an example.
 // SPDX-License-Identifier: 0BSD
 
 package a
 
 import (
 	"fmt"
 
 	"` + filler + `"
 )
 
|// F does it.
 func F() {
 	fmt.Println("` + filler + `")
 
 	fmt.Println()
 }
 
|// T is one.
 type T struct {
 	a int // ` + filler + `
 
 	b int
 }
`},
		"small neighbours": {false, `
|const a = 1
 
 const b = 2
 
 func c() { ` + filler + ` }
 
|const d = 4
`},
		"paragraphs and headings": {true, `
|# Title
 
 First. ` + filler + filler + filler + `
 
|Second, which is short.
 
 Third, which is too.
 
|## Section
 
 ### Section in it
 
 Fourth. ` + filler + filler + filler + `
|## Section without a blank line before it
 Fifth. ` + filler + filler + filler + `
`},
		"a fence is whole": {true, `
|First. ` + filler + filler + filler + `
 
|` + "```" + `
 # not a heading
 
 code ` + filler + filler + filler + `
 
 more code
 ` + "```" + `
 
|Second. ` + filler + filler + filler + `
`},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			var want, got []int
			for i, line := range strings.Split(strings.TrimSpace(test.text), "\n") {
				if line[0] == '|' {
					want = append(want, i+1)
				}
				text.WriteString(line[1:] + "\n")
			}
			for _, p := range passages(text.String(), test.prose) {
				got = append(got, p.Start)
			}
			assert.DeepEqual(t, got, want)
		})
	}
}

func TestPassagesAreBounded(t *testing.T) {
	statement := "\tstatement()\n"
	for name, text := range map[string]string{
		"a long function with blank lines": "func f() {\n" + strings.Repeat(strings.Repeat(statement, 20)+"\n", 40) + "}\n",
		"a long function without":          "func f() {\n" + strings.Repeat(statement, 800) + "}\n",
	} {
		all := passages(text, false)
		assert.Assert(t, len(all) > 3, name)
		for i, p := range all {
			assert.Assert(t, len(p.Text) <= largePassage, name)
			assert.Equal(t, p.heading, "func f() {\n", name)
			if i > 0 && strings.Contains(text, "\n\n") {
				assert.Assert(t, strings.HasSuffix(all[i-1].Text, "\n\n"), "%s: cut inside a block", name)
			}
		}
	}
	// The small rest of a long function does not take in the next one.
	f := "func f() {\n" + strings.Repeat(statement, largePassage/len(statement)-1) + "\n\treturn something\n}\n\n"
	all := passages(f+"func g() {}\n", false)
	assert.Equal(t, len(all), 3)
	assert.Equal(t, all[1].Text, "\treturn something\n}\n\n")

	long := strings.Repeat("x", 2*largePassage)
	all = passages("short\n"+long+"\nshort\n", true)
	assert.Equal(t, len(all), 3) // no line is ever cut
	assert.Equal(t, all[1].Text, long+"\n")
}

// Headings are indexed with each passage under them, which must not make the work grow with the square of the size.
func TestHeadingsAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"long line":    "# " + strings.Repeat("x", 1<<20) + "\n\nText.\n",
		"many lines":   strings.Repeat("# x\n", 1<<16),
		"many remarks": strings.Repeat("# x\n", 1<<16) + "x = 1\n",
	} {
		for _, p := range passages(text, name != "many remarks") {
			assert.Assert(t, len(p.heading) <= maxHeading, "%s: %d", name, len(p.heading))
		}
	}
}

func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"readLoop read_loop":              "read loop readloop read loop readloop",
		"HTTPServer parseURL":             "http server httpserver pars url parseurl",
		"_private __init__ x_1":           "privat init x 1 x1",
		"deletes deleted deleting delete": "delet delet delet delet",
		"cancelled cancel cancels":        "cancel cancel cancel",
		"queries query, matches match":    "queri queri match match",
		"string bring need ids process":   "string bring need id proces",
		"Réalisme ÉTÉ naïve":              "réalism été naïv",
		"2026-07-28 -32600":               "2026 07 28 32600",
		"搜索 text":                         "搜 索 搜索 text",
		"don't":                           "don t",
		"\xff\xfe invalid \x00 UTF\xc3":   "invalid utf",
		"":                                "",
	} {
		assert.Equal(t, strings.Join(terms(text), " "), want, "%q", text)
	}
}

func TestKeyTerms(t *testing.T) {
	assert.DeepEqual(t, keyTerms("How does a call find its answer? A call!"), []string{"answer", "cal", "find"})
	assert.DeepEqual(t, keyTerms("to be or not to be"), []string{"be", "not", "or", "to"})
	assert.Equal(t, len(keyTerms("?")), 0)
}

// libIndex has one document for each pair of name and text.
func libIndex(pairs ...string) *Index {
	var x Index
	for pair := range slices.Chunk(pairs, 2) {
		x.Add(pair[0], pair[1], isProse(pair[0]))
	}
	return &x
}

func TestSearchRanks(t *testing.T) {
	x := libIndex(
		"cache.go", "// Cache keeps what was read.\ntype Cache struct{}\n",
		"close.go", "// Close ends the connection and waits for its goroutines.\nfunc Close() {}\n",
		"conn.go", "// readLoop delivers answers. It ends with the connection.\nfunc readLoop() {}\n",
		"guide.md", "# Retries\n\nA request that failed with 503 is sent again after a while.\n",
		"long.md", "Connections, a connection, the connection. "+strings.Repeat("Many other words about something else. ", 30),
	)
	for query, want := range map[string]string{
		"what closes a connection": "close.go", // both words before one word often
		"retry":                    "guide.md", // a heading
		"requests failing":         "guide.md", // endings
		"cache":                    "cache.go",
		"read_loop":                "conn.go",  // spelled in another way
		"guide":                    "guide.md", // a file's name
		"The Who":                  "close.go", // only stop words: they count then
		"connection":               "close.go", // short before long
	} {
		hits := x.Search(query)
		assert.Assert(t, len(hits) > 0, query)
		assert.Equal(t, hits[0].Source, want, query)
		for i, h := range hits {
			assert.Assert(t, h.Similarity > 0 && h.Similarity < 1, "%s: %v", query, h)
			assert.Assert(t, i == 0 || h.Similarity <= hits[i-1].Similarity, query)
		}
	}
	assert.Equal(t, len(x.Search("zebra")), 0)
	assert.Equal(t, len(x.Search(" ?! ")), 0)
	assert.Equal(t, len(new(Index).Search("anything")), 0)
}

func TestSimilarityTellsHowMuchOfTheQueryIsMet(t *testing.T) {
	x := libIndex("a.txt", "apples and pears", "b.txt", "apples", "c.txt", "plums")
	of := func(query string) float64 { return x.Search(query)[0].Similarity }
	assert.Assert(t, of("apples pears") > of("apples pears bananas"))
	assert.Assert(t, of("apples pears bananas") > of("apples cherries bananas"))
	assert.Equal(t, of("pears pears pears"), of("pears"))
	x = libIndex("a.txt", strings.Repeat("apples ", 100_000))
	assert.Assert(t, of("apples") > 0.95 && of("apples") < 1)
}

func TestSearchKeepsTheOrderOfEquals(t *testing.T) {
	var pairs, want []string
	for i := range 100 {
		pairs = append(pairs, fmt.Sprintf("%02d.txt", i), strings.Repeat("same ", 1+i%2)+"thing\n")
	}
	for i := 1; i < 100; i += 2 { // they have the word twice
		want = append(want, fmt.Sprintf("%02d.txt", i))
	}
	for i := 0; i < 100; i += 2 {
		want = append(want, fmt.Sprintf("%02d.txt", i))
	}
	x := libIndex(pairs...)
	for range 5 {
		var got []string
		for _, h := range x.Search("same") {
			got = append(got, h.Source)
		}
		assert.DeepEqual(t, got, want)
	}
}

func FuzzPassages(f *testing.F) {
	f.Add("# a\n\nb\n```\n# c\n\n```\n", true)
	f.Add("// a\nfunc b() {\n\n\tc()\n\n}\n\n\n#\n", false)
	f.Add("\n\n\r\n \n"+strings.Repeat("x\n", 4000), false)
	f.Fuzz(func(t *testing.T, text string, prose bool) {
		whole, line := "", 1
		for _, p := range passages(text, prose) {
			whole += p.Text
			assert.Equal(t, p.Start, line)
			lines := strings.Count(p.Text, "\n")
			if !strings.HasSuffix(p.Text, "\n") {
				lines++ // the last line of all
			}
			line += lines
			assert.Equal(t, p.End, line-1)
			assert.Assert(t, len(p.Text) <= largePassage || lines == 1)
		}
		assert.Equal(t, whole, text)
	})
}

func FuzzTerms(f *testing.F) {
	f.Add("readLoop HTTPServer _x_ 搜索 don't")
	f.Add("ſeeds ǅ İ")
	f.Fuzz(func(t *testing.T, text string) {
		for _, term := range terms(text) {
			assert.Assert(t, term != "" && utf8.ValidString(term), "%q", term)
		}
		key := keyTerms(text)
		assert.Assert(t, slices.IsSorted(key) && len(key) <= len(terms(text)))
		var x Index
		x.Add("text.md", text, true)
		for _, h := range x.Search(text) {
			assert.Assert(t, h.Similarity > 0 && h.Similarity <= 1)
		}
	})
}
