# Voxgate, with its defaults. What limits strangers is off: a benchmark is a flood.
# name: Voxgate
# caller: voxgate
[ "$1" = version ] && exec "$COMPARE_GATEWAY" version
cat >"$COMPARE_FOLDER/tools.json" <<END
{"webhooks": [{"name": "lookup", "description": "Looks something up.", "url": "$COMPARE_TOOL", "secret": "only-for-this-machine-and-this-hour", "timeout": "20s"}]}
END
export VOXGATE_TOOLS="$COMPARE_FOLDER/tools.json" VOXGATE_ADDR=127.0.0.1:0 VOXGATE_DRAIN=0
export VOXGATE_LIMITS=sessions=0,new-per-second=0,new-per-second-per-key=0 GOOGLE_GEMINI_BASE_URL="$COMPARE_MODEL"
exec "$COMPARE_GATEWAY" serve
