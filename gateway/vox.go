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
func openVOX(s settings, host *bridge.Host, models *rest.Door, log *slog.Logger) (door *vox.Door, stop func(), err error) {
	door, stop = &vox.Door{Host: host, Generate: models.Generate, AppModel: s.appModel, MaxTokens: s.maxTokens, Logger: log}, func() {}
	if s.workspace == "" {
		return door, stop, nil
	}
	if door.Workspace, err = desk.OpenWorkspace(s.workspace); err != nil {
		return nil, nil, fmt.Errorf("workspace: %w", err)
	}
	return door, func() { door.Workspace.Close() }, nil
}
