#!/bin/sh
# Gets the end-of-turn model (smart-turn v3) and ONNX Runtime with their licences from PyPI into a folder, and prints the settings that
# use them. Usage: turn-model.sh FOLDER
set -eu

mkdir -p "$1"
folder=$(cd "$1" && pwd)
model=$folder/smart-turn-v3.2.onnx
sum=2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f
packages="pipecat-ai==1.14.0 onnxruntime==1.32.0"

# The file "ready" holds the versions of what the folder has.
if ! [ -e "$folder/ready" ] || [ "$(cat "$folder/ready")" != "$packages" ]; then
	work=$(mktemp -d "$folder/part.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	/usr/bin/python3 -m venv "$work/venv"
	# shellcheck disable=SC2086 # one argument per package
	"$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" $packages
	for wheel in "$work"/*.whl; do
		/usr/bin/python3 -m zipfile -e "$wheel" "$work"
	done
	echo "$sum  $work/pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx" | sha256sum -c --quiet
	mv "$work/pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx" "$model"
	mv "$work"/pipecat_ai-*.dist-info/licenses/LICENSE "$folder/LICENSE.smart-turn"
	mv "$work"/onnxruntime/capi/libonnxruntime.so.* "$folder/libonnxruntime.so"
	mv "$work/onnxruntime/LICENSE" "$folder/LICENSE.onnxruntime"
	mv "$work/onnxruntime/ThirdPartyNotices.txt" "$folder/NOTICES.onnxruntime"
	echo "$packages" >"$folder/ready"
fi
echo "VOXGATE_TURN_MODEL=$model"
echo "VOXGATE_ONNXRUNTIME=$folder/libonnxruntime.so"
