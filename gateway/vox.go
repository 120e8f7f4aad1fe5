package main

import (
	"fmt"
	"log/slog"

	"voxgate/bridge"
	"voxgate/signaling/rest"
	"voxgate/signaling/vox"
	desk "voxgate/tools/vox"
)

// openVOX is the door of the VOX assistant. Its typed talk and its apps are answered as REST calls are.
func openVOX(s settings, host *bridge.Host, models *rest.Door, stopping *ending, log *slog.Logger) (door *vox.Door, err error) {
	door = &vox.Door{Host: host, Generate: models.Generate, AppModel: s.appModel, MaxTokens: s.maxTokens, Logger: log}
	if s.workspace == "" {
		return door, nil
	}
	if door.Workspace, err = desk.OpenWorkspace(s.workspace); err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	stopping.then("workspace", func() { door.Workspace.Close() })
	return door, nil
}
