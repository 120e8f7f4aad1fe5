package catalogue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // many container images have no time zone database

	"voxgate/tools"
)

// builtin maps names to the built-in tools.
var builtin = map[string]tools.Tool{
	"get_time": {
		Declaration: tools.Declaration{
			Name:        "get_time",
			Title:       "Look up the time",
			Description: "Returns the current date and time, in a time zone if one is named.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"timezone":{"type":"string",` +
				`"description":"The name of a zone in the IANA database, such as Europe/Berlin. Left out: the zone of the server."}}}`),
		},
		Run: tools.WithDecodedArgs(currentTime),
	},
	"pause_recording": {
		Declaration: tools.Declaration{
			Name:  "pause_recording",
			Title: "Pause or resume the recording",
			Description: "Pauses the recording of this conversation, or goes on with it. " +
				"Call it with paused true before the person says a card number or another secret, and with paused false as soon as they have.",
			Parameters: json.RawMessage(`{"type":"object","required":["paused"],"properties":{"paused":{"type":"boolean"}}}`),
			Behavior:   tools.Blocking, Repeats: true,
		},
		Run: tools.WithDecodedArgs(pauseRecording),
	},
}

func pauseRecording(ctx context.Context, wanted struct{ Paused bool }) (json.RawMessage, error) {
	pause := tools.EnvOf(ctx).PauseRecording
	if pause == nil {
		return nil, errors.New("this conversation is not recorded")
	}
	if err := pause(wanted.Paused); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]bool{"paused": wanted.Paused})
}

func currentTime(_ context.Context, wanted struct{ Timezone string }) (json.RawMessage, error) {
	now := time.Now()
	zone, _ := now.Zone()
	if wanted.Timezone != "" {
		place, err := time.LoadLocation(wanted.Timezone)
		if err != nil {
			return nil, fmt.Errorf("unknown time zone %q: use a name of the IANA database, such as Europe/Berlin", wanted.Timezone)
		}
		now, zone = now.In(place), wanted.Timezone
	}
	return json.Marshal(map[string]string{
		"time": now.Format(time.RFC3339), "timezone": zone, "spoken": now.Format("Monday, 2 January 2006, 15:04"),
	})
}
