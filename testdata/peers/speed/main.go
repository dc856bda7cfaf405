// Command speed runs each client on each work, by turns, and prints a table in Markdown.
//
//	speed FOLDER ROUNDS MILLISECONDS
//
// The programs of the clients and of the server are in the folder. Each round runs every client once, each time
// another one first, and gives one ratio of its time to the raw pipe's; the table has the medians.
package main

import (
	"bufio"
	"debug/buildinfo"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"speed/work"
)

// clients are the programs, with the module of those that are not ours. The first is what the others are compared to.
var clients = []struct{ program, title, module string }{
	{"raw", "raw", ""},
	{"ours", "this client", ""},
	{"gosdk", "Go SDK", "github.com/modelcontextprotocol/go-sdk"},
	{"mcpgo", "mcp-go", "github.com/mark3labs/mcp-go"},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: speed FOLDER ROUNDS MILLISECONDS")
	}
	folder := os.Args[1]
	rounds, err := strconv.Atoi(os.Args[2])
	check(err)
	works := work.All()
	figures := make([][][]work.Figures, len(works)) // by work, client and round
	for i := range figures {
		figures[i] = make([][]work.Figures, len(clients))
	}
	for round := range rounds {
		for i, w := range works {
			for turn := range clients {
				c := (round + turn) % len(clients)
				figures[i][c] = append(figures[i][c], run(folder, clients[c].program, i, w.Start))
			}
		}
	}

	fmt.Print("| work |")
	for _, c := range clients {
		fmt.Printf(" %s |", strings.TrimSpace(c.title+" "+version(filepath.Join(folder, c.program), c.module)))
	}
	fmt.Print("\n|---|---|---|---|---|\n")
	if rounds == 0 {
		return
	}
	for i, w := range works {
		fmt.Printf("| %s |", w.Name)
		for c, f := range figures[i] {
			cell := duration(median(f, func(f work.Figures) float64 { return f.Ns }))
			if c > 0 {
				ratios := make([]float64, rounds)
				for round := range ratios {
					ratios[round] = f[round].Ns / figures[i][0][round].Ns
				}
				cell = digits(middle(ratios))
				if !w.Start {
					cell += fmt.Sprintf(" (%.0f, %s)", median(f, func(f work.Figures) float64 { return f.Allocations }),
						size(median(f, func(f work.Figures) float64 { return f.Bytes })))
				}
			}
			fmt.Printf(" %s |", cell)
		}
		fmt.Println()
	}
	for i, w := range works {
		if w.Start || w.InFlight == 10_000 || w.Text == 10<<20 || w.Tools == 10_000 {
			fmt.Printf("| memory at its peak: %s |", w.Name)
			for _, f := range figures[i] {
				fmt.Printf(" %.0f MiB |", median(f, func(f work.Figures) float64 { return f.Peak })/1024)
			}
			fmt.Println()
		}
	}
}

// run runs the program of a client on one work. The time of a start is that from here to the program's line, which it
// prints after its first call.
func run(folder, program string, index int, start bool) (f work.Figures) {
	milliseconds := os.Args[3]
	if start {
		milliseconds = "0"
	}
	server := filepath.Join(folder, "server")
	client := exec.Command(filepath.Join(folder, program), server, strconv.Itoa(index), milliseconds)
	client.Stderr = os.Stderr
	out, err := client.StdoutPipe()
	check(err)
	begin := time.Now()
	check(client.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	elapsed := time.Since(begin)
	check(err)
	_, err = fmt.Sscan(line, &f.Ns, &f.Allocations, &f.Bytes, &f.Peak)
	check(err)
	check(client.Wait())
	if start {
		f.Ns = float64(elapsed)
	}
	return f
}

// version returns that of a module in a program.
func version(program, module string) string {
	info, err := buildinfo.ReadFile(program)
	check(err)
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return ""
}

func median(figures []work.Figures, of func(work.Figures) float64) float64 {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = of(f)
	}
	return middle(values)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func digits(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func duration(ns float64) string {
	if ns < 1e6 {
		return digits(ns/1e3) + " µs"
	}
	return digits(ns/1e6) + " ms"
}

func size(bytes float64) string {
	if bytes < 1e6 {
		return fmt.Sprintf("%.1f kB", bytes/1e3)
	}
	return fmt.Sprintf("%.1f MB", bytes/1e6)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
