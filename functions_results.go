// functions_results.go - what a model reads, and sees, of a tool's result.
// Needs: Go 1.25, json, rpc, mcp, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// ModelText returns a tool's result as a model reads it: text as it is, bytes as a placeholder,
// links as URI and name. Structured content repeats what the text says (MCP 2025-11-25, tools,
// structured content), so it stands in only where there is no other content.
func ModelText(r *ToolResult) string {
	if len(r.Content) == 0 {
		return string(r.StructuredContent)
	}
	texts := make([]string, len(r.Content))
	for i, b := range r.Content {
		texts[i] = blockText(b)
	}
	return strings.Join(texts, "\n")
}

// blockText returns one block of a result as a model reads it.
func blockText(b ContentBlock) string {
	switch b.Type {
	case "text":
		return b.Text
	case "image", "audio":
		return fmt.Sprintf("[%s: %s, %d bytes]", b.Type, b.MIMEType, len(b.Data))
	case "resource_link":
		name := strings.TrimSpace(b.Name + " " + b.Description)
		return strings.TrimSpace(fmt.Sprintf("[resource: %s %s", b.URI, name)) + "]"
	case "resource":
		return ResourceText(b.Resource)
	}
	return fmt.Sprintf("[%s: %s]", b.Type, b.Raw)
}

// ResourceText returns a resource as a model reads it: its URI and its text, or a placeholder for
// its bytes.
func ResourceText(r *ResourceContents) string {
	switch {
	case r == nil:
		return "[resource without contents]"
	case r.Blob != nil:
		return fmt.Sprintf("[resource: %s %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob))
	}
	return fmt.Sprintf("[resource: %s]\n%s", r.URI, r.Text)
}

// ModelOutput returns a tool's result as the outcome of a call: its ModelContent for the model, and
// the result itself for the program.
func ModelOutput(r *ToolResult) ToolOutput {
	text, images := ModelContent(r, nil)
	return ToolOutput{Text: text, Images: images, IsError: r.IsError, Result: r}
}

// The images that the API takes, as Mistral documents it: so many in a request, of so many bytes
// each.
const (
	MaxImages = 8
	MaxImage  = 10_000_000
)

// ModelContent returns a tool's result for a model that may see: its ModelText, in which each image
// has a number or says why it is left out, and the images after those that are given, as data URLs.
// There are never more than MaxImages with those that are given: a result of a thousand images
// would pass every bound of text. The text says how many more are left out.
func ModelContent(r *ToolResult, images []string) (string, []string) {
	if len(r.Content) == 0 {
		return ModelText(r), images
	}
	var texts []string
	leftOut := 0
	for _, b := range r.Content {
		text := blockText(b)
		data, isImage := imageData(b)
		fault := imageFault(data)
		switch {
		case !isImage:
		case fault != "":
			text = strings.TrimSuffix(text, "]") + ", left out: " + fault + "]"
		case len(images) < MaxImages:
			images = append(images, imageURL(data))
			text = fmt.Sprintf("%s, image %d]", strings.TrimSuffix(text, "]"), len(images))
		default:
			leftOut++
			// A resource has a URI, by which the model can still name it.
			if b.Type == "image" {
				continue
			}
		}
		texts = append(texts, text)
	}
	if leftOut > 0 {
		texts = append(texts, fmt.Sprintf("[images left out: %d, as a model is sent at most %d]",
			leftOut, MaxImages))
	}
	return strings.Join(texts, "\n"), images
}

// IsModelImage reports whether a block is an image that the API takes.
func IsModelImage(b ContentBlock) bool {
	data, isImage := imageData(b)
	return isImage && imageFault(data) == ""
}

// imageData returns the bytes of a block that is an image. The blob of a resource may be one, too,
// even if the server does not say so.
func imageData(b ContentBlock) (data []byte, isImage bool) {
	if b.Type == "image" {
		return b.Data, true
	}
	if b.Type != "resource" || b.Resource == nil || b.Resource.Blob == nil {
		return nil, false
	}
	data = b.Resource.Blob
	isImage = strings.HasPrefix(b.Resource.MIMEType, "image/") || imageType(data) != ""
	return data, isImage
}

// imageFault returns why the API does not take an image, "" if it does.
func imageFault(data []byte) string {
	switch {
	case len(data) > MaxImage:
		return "it is larger than 10 MB"
	case imageType(data) == "":
		return "it is not a PNG, JPEG, WEBP or GIF"
	}
	return ""
}

// imageURL returns an image as a data URL.
func imageURL(data []byte) string {
	return "data:" + imageType(data) + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// imageType returns the type of an image that the API takes, else "". What counts is what the bytes
// are, not what the server calls them: the API refuses a whole request for an image of another
// type.
func imageType(data []byte) string {
	switch kind := http.DetectContentType(data); kind {
	case "image/png", "image/jpeg", "image/webp", "image/gif":
		return kind
	}
	return ""
}

// ShowImages returns messages as the API takes them: the last `most` images become chunks; for each
// other one a line of text says why it is left out. The caller decides whether a model sees: most
// is 0 for one that does not. In this program that is modelChoice.Complete.
//
// The content of a tool message is a string, so the images of tools stand in a message of the user
// behind the results. Servers before mid-2026 refused a user's message directly after a tool's, so
// a message of the assistant stands between. A label over each image says which result it is of.
func ShowImages(messages []ChatMessage, most int, why string) []ChatMessage {
	count := 0
	for _, m := range messages {
		count += len(m.Images)
	}
	if count == 0 {
		return messages
	}
	leaveOut := count - most
	var shown []ChatMessage
	// A run is tool messages without another message between them. ofTools has the images of the
	// run so far, for the message of the user behind it. result numbers the messages of the run,
	// for the labels of the images.
	var ofTools []any
	result := 0
	for i, m := range messages {
		source := ""
		if m.Role == "tool" {
			result++
			source = fmt.Sprintf(" of result %d, %s", result, m.Name)
		} else {
			result = 0
		}
		if len(m.Images) > 0 {
			text, chunks := imageChunks(&m, source, leaveOut, why)
			leaveOut -= len(m.Images)
			m.Images = nil
			if m.Role == "tool" {
				m.Content = TextContent(text)
				ofTools = append(ofTools, chunks...)
			} else {
				m.Content = contentWithImages(text, chunks)
			}
		}
		shown = append(shown, m)
		isLastResult := i+1 == len(messages) || messages[i+1].Role != "tool"
		if len(ofTools) > 0 && isLastResult {
			// Strings can always be encoded.
			content, _ := plainJSON(ofTools)
			shown = append(shown,
				ChatMessage{Role: "assistant", Content: TextContent("The images follow.")},
				ChatMessage{Role: "user", Content: content})
			ofTools = nil
		}
	}
	return shown
}

// imageChunks returns the text of a message with a line for each of its first images, which are
// left out, and the others as chunks, each under a label.
func imageChunks(m *ChatMessage, source string, leaveOut int, why string) (string, []any) {
	text := m.Content.Text()
	var chunks []any
	for i, url := range m.Images {
		if i < leaveOut {
			text += fmt.Sprintf("\n(Image %d is left out: %s.)", i+1, why)
			continue
		}
		label := fmt.Sprintf("Image %d%s:", i+1, source)
		chunks = append(chunks,
			chunk("text", label),
			chunk("image_url", map[string]string{"url": url}))
	}
	return text, chunks
}

// contentWithImages returns a content of a text and the chunks after it, a string if there are
// none.
func contentWithImages(text string, chunks []any) Content {
	if len(chunks) == 0 {
		return TextContent(text)
	}
	// Strings can always be encoded.
	content, _ := plainJSON(append([]any{chunk("text", text)}, chunks...))
	return content
}

// chunk returns a chunk of a content: {"type": kind, kind: value}.
func chunk(kind string, value any) any {
	return map[string]any{"type": kind, kind: value}
}
