package geminirest

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
)

// serveModels sends the description of one model, or the list of all.
func (c *restCall) serveModels(ctx context.Context, r *http.Request) error {
	if c.model != "" {
		about, err := c.server.backendFor(c.model).describeModel(ctx, c.model)
		if err != nil {
			return c.writeFailure(ctx, err)
		}
		return c.writeResponse(tools.EncodeOrEmpty(about))
	}
	models, next, err := c.server.collectModels(ctx, c.open, r.URL.Query())
	if err != nil {
		return c.writeFailure(ctx, err)
	}
	page := object{"models": models}
	if next != "" {
		page["nextPageToken"] = next
	}
	return c.writeResponse(tools.EncodeOrEmpty(page))
}

// collectModels returns one page of the models' descriptions. It includes only models that the grant in open permits.
// query is from the client's request. nextPageToken is "" on the last page. The first page begins with the models of
// servers other than Google's. The models of a server are left out if the server returns no list.
func (s *Server) collectModels(
	ctx context.Context, open bridge.SessionRequest, query url.Values,
) (models []any, nextPageToken string, err error) {
	page := url.Values{}
	for _, name := range []string{"pageSize", "pageToken"} {
		if query.Get(name) != "" {
			page.Set(name, query.Get(name))
		}
	}
	models = []any{}
	add := func(of backend, some []any) {
		for _, one := range some {
			about, _ := one.(object)
			full, _ := about["name"].(string)
			name := full[strings.LastIndexByte(full, '/')+1:]
			if s.backendFor(name) == of && isModelAllowed(open, name) {
				models = append(models, about)
			}
		}
	}
	for _, route := range s.routes {
		if route.backend == s.google || page.Has("pageToken") {
			continue
		}
		if !strings.ContainsAny(route.model, `*?[\`) {
			about, _ := route.backend.describeModel(ctx, route.model) // answered locally, without a request
			add(route.backend, []any{about})
			continue
		}
		some, _, err := route.backend.listModels(ctx, nil)
		if err != nil {
			s.Logger.Warn("a server has no list of models", "route", route.model, "err", err)
		}
		add(route.backend, some)
	}
	if !s.usesGoogle() {
		return models, "", nil
	}
	some, nextPageToken, err := s.google.listModels(ctx, page)
	add(s.google, some)
	return models, nextPageToken, err
}

// usesGoogle reports whether Google's backend serves any models.
func (s *Server) usesGoogle() bool {
	for _, route := range s.routes {
		if route.backend == s.google || route.model == "*" {
			return route.backend == s.google
		}
	}
	return true
}
