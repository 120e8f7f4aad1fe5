package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// encodeProgress converts a server's progress notification to an object for the model.
func encodeProgress(p *mcp.ProgressNotificationParams) json.RawMessage {
	b, _ := json.Marshal(struct { // cannot fail with these three types
		Progress float64 `json:"progress"`
		Total    float64 `json:"total,omitempty"`
		Message  string  `json:"message,omitempty"`
	}{p.Progress, p.Total, p.Message})
	return b
}

// convertResult converts a server's response to a tool's result. It prefers the structured content. Otherwise the
// result is the text, if that is a single JSON object, or an object with the text. An empty response has the result
// nil.
func convertResult(r *mcp.CallToolResult) (json.RawMessage, error) {
	var parts []string
	for _, content := range r.Content {
		parts = append(parts, contentText(content))
	}
	joined := strings.Join(parts, "\n")
	if r.IsError {
		if joined == "" {
			joined = "the tool failed and did not say why"
		}
		return nil, errors.New(joined)
	}
	if r.StructuredContent != nil {
		// The SDK has rounded integers above 2^53. Servers should also send the structured content as text, in which
		// the integers are exact. So the text is used if it has the same content.
		var same any
		if json.Unmarshal([]byte(joined), &same) == nil && reflect.DeepEqual(same, r.StructuredContent) {
			return json.RawMessage(joined), nil
		}
		return json.Marshal(r.StructuredContent)
	}
	if joined == "" {
		return nil, nil
	}
	if len(parts) == 1 && strings.HasPrefix(strings.TrimSpace(joined), "{") && json.Valid([]byte(joined)) {
		return json.RawMessage(joined), nil
	}
	return json.Marshal(map[string]string{"output": joined})
}

// contentText returns a part of a result as text. If the part is not text, it returns a note that the part was omitted.
func contentText(content mcp.Content) string {
	switch c := content.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[an image (%s) was left out]", c.MIMEType)
	case *mcp.AudioContent:
		return fmt.Sprintf("[a sound (%s) was left out]", c.MIMEType)
	case *mcp.ResourceLink:
		return fmt.Sprintf("[a link to %q (%s) was left out]", c.Name, c.MIMEType)
	case *mcp.EmbeddedResource:
		if c.Resource == nil || c.Resource.Blob == nil {
			if c.Resource != nil {
				return c.Resource.Text
			}
			return ""
		}
		return fmt.Sprintf("[a file (%s) was left out]", c.Resource.MIMEType)
	default:
		return fmt.Sprintf("[%T was left out]", content)
	}
}
