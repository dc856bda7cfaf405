// ranking_synonyms.go - people's words, and the words of programs for them.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import "strings"

// Alternatives returns, for each of some terms, itself and the terms of the words that programs
// use for it: that of drop comes with that of delete. Who asks for something often has none of the
// words of its author, and no other step of a ranking can make up for that: of all that were tried
// this is the one that finds more (docs/performance.md).
//
// It goes one way alone. If any of the words that mean the same stood for any other, then who asks
// in the words of a program would find less.
func Alternatives(terms []string) [][]string {
	ofPeople := make(map[string][]string)
	for line := range strings.Lines(synonyms) {
		ofProgram, words, _ := strings.Cut(line, ":")
		for _, word := range strings.Fields(words) {
			ofPeople[Stem(word)] = append(ofPeople[Stem(word)], Stem(ofProgram))
		}
	}
	all := make([][]string, len(terms))
	for i, term := range terms {
		all[i] = append([]string{term}, ofPeople[term]...)
	}
	return all
}

// synonyms has on each line a word that programs use, in the names of functions and in what is
// said of them, and the words that people use for it. They are words of everyday English and of
// computers in general, and none is the name of a product. A word may stand on several lines.
const synonyms = `account: bank login
activity: exercise ride run sport training walk workout
add: attach insert put
alert: danger storm warning
append: continue end
application: app program software website
approve: accept agree allow ok yes
archive: away done finished old
assign: give
attachment: file picture
balance: left money owe
branch: line version
budget: limit spend
calendar: agenda appointment
cancel: abort stop
category: kind sort type
channel: group room
chart: curve diagram draw graph picture plot
checklist: tick
click: press push
close: done end finish shut
column: field
comment: answer opinion remark reply
commit: save
compare: difference
complete: done finish tick
contact: customer friend person phone
convert: turn
copy: duplicate
create: add build draw leave make new open put start write
current: now today
data: figures numbers
delete: cancel clear discard drop erase forget remove throw
deploy: live publish ship
diff: change compare difference
directions: drive route travel way
directory: folder
disable: off
distance: far long
document: bill contract invoice letter paper receipt scan
download: fetch save
edit: change correct fix
elevation: altitude height high
email: inbox letter mail
error: broken crash fail problem wrong
event: appointment meeting party
execute: run start
export: download save
field: column
file: document
fill: enter type
forecast: rain tomorrow umbrella weekend
fork: copy
get: fetch give look open read see show tell view
history: ago before earlier past yesterday
image: logo photo picture
invite: ask
issue: bug complaint problem ticket trouble
job: build task
label: mark tag
list: all every see show
location: address place
log: happen output print
member: colleague people person somebody team
merge: combine join unite
message: chat say talk tell write
move: drag put rename shift transfer
navigate: browse go open visit
note: idea jot thought
notification: news
order: bought buy purchase
page: site website
permission: access allow right
pipeline: build
place: close near nearby shop street
post: announce publish say share tell write
presentation: deck slideshow talk
price: cost expensive
product: article goods item
query: ask find search
reaction: emoji like thumb
record: entry row
release: publish ship version
rename: call name
replace: change swap
reply: answer respond
repository: code project
restart: again reboot
retry: again
revert: back undo
route: path way
run: start
save: keep store
schedule: book plan
screenshot: picture
search: find look
send: mail tell
slide: deck page
statistics: average far many much total
status: broken running state
stop: end halt kill
summary: much overview total
table: grid
tag: label mark
task: chore errand todo work
temperature: cold hot warm
thread: answer conversation
time: clock hour late
transaction: bought buy cost expense paid pay spend spent
type: enter
update: change correct edit fix modify set
upload: attach put
user: account colleague people person somebody
variable: password setting
weather: cold hot rain sun umbrella wind
`
