# Voxgate, with its defaults. What limits strangers is off: a benchmark is a flood.
# name: Voxgate
# caller: voxgate
[ "$1" = version ] && exec "$COMPARE_GATEWAY" version
cat >"$COMPARE_FOLDER/tools.json" <<END
{"webhooks": [{"name": "lookup", "description": "Looks something up.", "url": "$COMPARE_TOOL", "secret": "only-for-this-machine-and-this-hour", "timeout": "20s"}]}
END
mkdir "$COMPARE_FOLDER/agents"
printf -- "---\nnumbers: ['*']\n---\n%s\n" "$COMPARE_INSTRUCTION" >"$COMPARE_FOLDER/agents/all.md"
cat >"$COMPARE_FOLDER/telephony.json" <<END
{"publicURL": "https://bench.example", "providers": [{"profile": "twilio", "verify": "$COMPARE_TWILIO"}]}
END
cat >"$COMPARE_FOLDER/sip.json" <<END
{"listen": [{"transport": "udp", "address": "$COMPARE_SIP"}], "rtp": {"address": "127.0.0.1"}, "calls": 300,
 "trunks": [{"name": "phones", "from": ["127.0.0.1"], "calls": 300, "callsPerSecond": 80}, {"name": "line", "from": ["127.0.0.2"], "silence": "send"}]}
END
export VOXGATE_AGENTS="$COMPARE_FOLDER/agents" VOXGATE_TELEPHONY="$COMPARE_FOLDER/telephony.json" VOXGATE_SIP="$COMPARE_FOLDER/sip.json"
export VOXGATE_TOOLS="$COMPARE_FOLDER/tools.json" VOXGATE_ADDR=127.0.0.1:0 VOXGATE_DRAIN=0
export VOXGATE_PUBLIC_IP=127.0.0.1 # the callers' only network, as for the echo
export VOXGATE_LIMITS=sessions=0,new-per-second=0,new-per-second-per-key=0 GOOGLE_GEMINI_BASE_URL="$COMPARE_MODEL"
exec "$COMPARE_GATEWAY" serve
