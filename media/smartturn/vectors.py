"""Writes testdata/mel.bin and testdata/probabilities.txt from the package pipecat-ai of PyPI (tried with 1.14.0):

    pip install onnx onnxruntime numpy
    pip download --no-deps pipecat-ai && unzip pipecat_ai-*.whl
    python vectors.py pipecat/audio/turn/smart_turn

The model is cut to its last 2 s, as cut.go does. mel.bin has the input for the last 2 s of the recording, as 16-bit integers of 1/8192.
probabilities.txt has a line for each end of a window in the recording, in samples, and the model's output.
"""
import sys
import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, sys.argv[1])
from _whisper_features import compute_whisper_log_mel_features

SAMPLES, WHOLE, FRAMES, POSITIONS = 32000, 128000, 200, 100

model = onnx.load(sys.argv[1] + "/data/smart-turn-v3.2-cpu.onnx")
for tensor in model.graph.initializer:
    values = onnx.numpy_helper.to_array(tensor)
    if tensor.name == "inner.encoder.embed_positions.weight":
        tensor.CopyFrom(onnx.numpy_helper.from_array(values[-POSITIONS:].copy(), tensor.name))
    elif values.dtype == np.int64 and values.tolist() == [400]:
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([POSITIONS]), tensor.name))
del model.graph.value_info[:]
model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = FRAMES
session = onnxruntime.InferenceSession(model.SerializeToString())

pcm = np.fromfile("../silero/testdata/speech.pcm", "<i2").astype(np.float32) / 32768


def mel(window):
    return compute_whisper_log_mel_features(np.pad(window, (WHOLE - len(window), 0)))[:, -FRAMES:]


(mel(pcm[-SAMPLES:]) * 8192).round().astype("<i2").tofile("testdata/mel.bin")
with open("testdata/probabilities.txt", "w") as out:
    for end in range(4000, len(pcm) + 1, 1500):
        p = session.run(None, {"input_features": mel(pcm[max(0, end - SAMPLES):end])[None]})[0].item()
        print(end, f"{p:.5f}", file=out)
