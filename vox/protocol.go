package vox

import (
	"flag"
	"fmt"

	"voxgate/agents"
	"voxgate/signaling"
	desk "voxgate/vox/assistant"
)

// Protocol declares the VOX assistant to the program.
func Protocol() signaling.Protocol {
	var folder string // folder for generated apps; "": none are generated
	return signaling.Protocol{
		Name: protocolName,
		AddFlags: func(f *flag.FlagSet) {
			f.StringVar(&folder, "workspace", "",
				"`folder` for the projects and apps of the VOX assistant (docs/vox.md); empty: no apps are generated")
		},
		Check: func(_ *agents.Folder, check func(string, string, func() error)) {
			check("workspace", folder, func() error { return desk.CheckWorkspace(folder) })
		},
		Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
			s := Server{
				Host: e.Host, Generate: e.TextModels.GenerateContent, CheckModel: e.TextModels.CheckModel, AppModel: e.TextModel,
				MaxTokens: e.MaxTokens, Logger: e.Logger,
			}
			if folder == "" {
				return s.Endpoints(), nil, nil
			}
			var origins []string
			for _, o := range e.Origins {
				origins = append(origins, o.String())
			}
			workspace, err := desk.OpenWorkspace(folder, origins...)
			if err != nil {
				return nil, nil, fmt.Errorf("workspace: %w", err)
			}
			s.Workspace = workspace
			e.Logger.Info("VOX stores projects and apps", "in", folder)
			return s.Endpoints(), func() { workspace.Close() }, nil
		},
	}
}
