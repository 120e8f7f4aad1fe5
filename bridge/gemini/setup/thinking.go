package setup

import (
	"encoding/json"
	"fmt"
)

// Google's own equivalents of efforts as levels and as budgets: https://ai.google.dev/gemini-api/docs/openai#thinking.
var efforts = []struct {
	level  string
	budget int64 // tokens, at most
}{
	{"MINIMAL", 0}, // no thinking
	{"LOW", 1024},
	{"MEDIUM", 8192},
	{"HIGH", maxBudget},
}

const (
	// maxBudget is the largest thinkingBudget of the 2.5 flash models, dynamicBudget lets the model choose:
	// https://ai.google.dev/gemini-api/docs/thinking#set-budget.
	maxBudget     = 24576
	dynamicBudget = -1

	// soonest is the level for a model that insists on one when the client names none: people wait for the answer.
	soonest = "LOW"
)

// thinking makes of thinkingConfig what the model takes.
func (p *parser) thinking(generation map[string]any) error {
	path := p.path + ".generationConfig.thinkingConfig"
	config, given := generation["thinkingConfig"].(map[string]any)
	level, _ := config["thinkingLevel"].(string)
	var budget *int64
	if number, ok := config["thinkingBudget"].(json.Number); ok {
		n, err := number.Int64()
		if err != nil || n < dynamicBudget || n > maxBudget {
			return &FieldError{Field: path + ".thinkingBudget", Problem: fmt.Sprintf("must be from %d to %d", dynamicBudget, maxBudget)}
		}
		budget = &n
	}
	switch p.row.thinking {
	case thinksNever:
		if given {
			delete(generation, "thinkingConfig")
			p.warnf("%s was dropped: %s does not take it.", path, p.Model)
		}
		return nil
	case thinksBudget:
		if level == "" {
			break
		}
		delete(config, "thinkingLevel")
		if budget != nil {
			p.warnf("%s.thinkingLevel was dropped: %s takes thinkingBudget.", path, p.Model)
			break
		}
		for _, e := range efforts {
			if e.level == level {
				config["thinkingBudget"] = json.Number(fmt.Sprint(e.budget))
				p.warnf("%s.thinkingLevel %s was sent as thinkingBudget %d, which is what %s takes.", path, level, e.budget, p.Model)
			}
		}
	case thinksLevel, thinksAlways:
		if budget == nil {
			break
		}
		delete(config, "thinkingBudget")
		if level != "" || *budget == dynamicBudget {
			p.warnf("%s.thinkingBudget was dropped: %s takes thinkingLevel.", path, p.Model)
			break
		}
		for _, e := range efforts {
			if level == "" && *budget <= e.budget {
				level = e.level
			}
		}
		config["thinkingLevel"] = level
		p.warnf("%s.thinkingBudget %d was sent as thinkingLevel %s, which is what %s takes.", path, *budget, level, p.Model)
	case thinksAnyhow:
		if budget != nil && level != "" { // https://ai.google.dev/gemini-api/docs/gemini-3: both are an error
			delete(config, "thinkingBudget")
			p.warnf("%s.thinkingBudget was dropped: there is a thinkingLevel.", path)
		}
	}
	if p.row.thinking == thinksAlways {
		if config == nil {
			config = make(map[string]any)
			generation["thinkingConfig"] = config
		}
		switch level {
		case "":
			config["thinkingLevel"] = soonest
		case "MINIMAL":
			config["thinkingLevel"] = soonest
			p.warnf("%s.thinkingLevel became %s: %s has no %s.", path, soonest, p.Model, level)
		}
	}
	if given && len(config) == 0 {
		delete(generation, "thinkingConfig")
	}
	return nil
}
