# What a server in Go with Pion and libopus costs that decodes each packet and encodes it again: lab/echo.go.
# name: Echo
# caller: voxgate
# cannot beep.websocket beep.twilio beep.sip slow.heard slow.beside slow.memory: it takes WebRTC alone
# cannot barge first up.0 up.5 up.10 up.20 up.30 up.burst up.jitter up.dark goaway dropped.before dropped.in dropped.after silent: there is no model behind it
# cannot down.0 down.5 down.10 down.20 down.30 down.burst down.jitter down.dark stretch.0 stretch.10 stretch.20 stretch.jitter: what comes back has crossed the network twice
# cannot cancelled twice: it calls no tools
[ "$1" = version ] && echo "of this program" && exit
exec "$COMPARE_BENCH" echo
