package canvas

import (
	"errors"
	"net/url"

	"github.com/microcosm-cc/bluemonday"
)

// policy is what of HTML a text may have. Links open elsewhere, without a referrer or an opener.
var policy = newPolicy()

func newPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("b", "i", "u", "em", "strong", "s", "small", "sub", "sup", "br", "p", "h1", "h2", "h3", "h4", "ul", "ol", "li",
		"blockquote", "code", "pre", "span", "hr", "table", "tr", "td", "th", "thead", "tbody")
	p.AllowAttrs("href").OnElements("a")
	p.RequireParseableURLs(true)
	p.AllowURLSchemes("mailto", "tel")
	// "https:host" is a link as well for browsers, but none that bluemonday takes for one that leaves the page.
	p.AllowURLSchemeWithCustomPolicy("https", func(u *url.URL) bool { return u.Host != "" && u.User == nil })
	p.AddTargetBlankToFullyQualifiedLinks(true) // with rel="noopener"
	p.RequireNoReferrerOnLinks(true)
	return p
}

// passes is how often HTML is cleaned at most until cleaning changes nothing more: what unfolds again and again is made to.
const passes = 4

// cleanHTML returns what of text is allowed.
func cleanHTML(text string) (string, error) {
	for range passes {
		clean := policy.Sanitize(text)
		if clean == text {
			return clean, nil
		}
		text = clean
	}
	return "", errors.New("is HTML that cannot be made safe")
}
